import assert from 'node:assert/strict';
import { ERROR_CODES, MeshnetError, type ErrorCode } from '../../src/errors.ts';
import { httpErrorOf } from '../../src/gateway/http-error.ts';

const statusOf = (code: ErrorCode): number => httpErrorOf(new MeshnetError(code)).status;

describe('gateway/http-error', () => {
  it('has a body that every client can read, for every code', () => {
    for (const code of Object.keys(ERROR_CODES) as ErrorCode[]) {
      const { status, body } = httpErrorOf(new MeshnetError(code));
      assert.ok(status >= 400 && status < 600);
      assert.deepEqual(Object.keys(body.error).sort(), ['code', 'message', 'param', 'type']);
      assert.ok(body.error.code === null || typeof body.error.code === 'string');
      assert.ok(body.error.param === null || typeof body.error.param === 'string');
      assert.notEqual(body.error.message, '');
    }
  });

  it('blames the client for what the client can change, so that it is not sent again', () => {
    for (const code of ['REQUEST_INVALID', 'UNSUPPORTED', 'TURN_INVALID', 'GRAMMAR_INVALID', 'TOKEN_INVALID', 'CONTEXT_LENGTH_EXCEEDED', 'CONTEXT_FULL'] as const) {
      assert.equal(statusOf(code), 400, code);
    }
    assert.deepEqual(['MODEL_UNKNOWN', 'UNAUTHORIZED', 'FORBIDDEN', 'BODY_TOO_LARGE', 'BUSY', 'NO_ROUTE', 'SEAM_TIMEOUT', 'INTERNAL'].map((code) => statusOf(code as ErrorCode)),
      [404, 401, 403, 413, 429, 503, 504, 500]);
  });

  it('keeps the names that clients look for', () => {
    const { body } = httpErrorOf(new MeshnetError('CONTEXT_LENGTH_EXCEEDED'));
    assert.equal(body.error.code, 'context_length_exceeded');
    assert.equal(body.error.param, 'messages');
    assert.equal(httpErrorOf(new MeshnetError('MODEL_UNKNOWN')).body.error.code, 'model_not_found');
    assert.equal(httpErrorOf(new MeshnetError('NO_ROUTE')).body.error.code, 'no_route');
    assert.equal(httpErrorOf(new MeshnetError('REQUEST_INVALID', 'x', { details: { param: 'stop[3]' } })).body.error.param, 'stop[3]');
  });

  it('answers alike, and with a time to come back, however the loss of a stage was noticed', () => {
    for (const code of ['WORKER_LOST', 'STREAM_ENDED', 'LEASE_EXPIRED', 'SEAM_UNREACHABLE', 'PEER_UNREACHABLE'] as const) {
      const { status, retryAfter = 0 } = httpErrorOf(new MeshnetError(code));
      assert.equal(status, 503, code);
      assert.ok(retryAfter > 0, code);
    }
  });

  it('says when to come back, in whole seconds', () => {
    assert.equal(httpErrorOf(new MeshnetError('NO_CAPACITY', 'x', { details: { retryAfterMs: 1001 } })).retryAfter, 2);
    assert.equal(httpErrorOf(new MeshnetError('NOT_SERVING', 'x', { details: { retryAfterMs: 0xffff_ffff } })).retryAfter, 60);
    assert.ok((httpErrorOf(new MeshnetError('NO_ROUTE')).retryAfter ?? 0) > 0);
    assert.equal(httpErrorOf(new MeshnetError('REQUEST_INVALID')).retryAfter, undefined);
  });

  it('makes a fault of ours out of anything else, with a bounded message', () => {
    const { status, body } = httpErrorOf(new TypeError('x'.repeat(10_000)));
    assert.equal(status, 500);
    assert.ok(body.error.message.length <= 2000);
  });
});
