import assert from 'node:assert/strict';
import {
  ERROR_CODES,
  FIRST_LOCAL_CODE,
  MeshnetError,
  errorFromWire,
  formatError,
  isMeshnetError,
  toMeshnetError,
  wireCode,
  type ErrorCode,
} from '../src/errors.ts';

describe('errors', () => {
  const codes = Object.keys(ERROR_CODES) as ErrorCode[];

  it('gives every code a number of its own, a time and an advice', () => {
    const numbers = codes.map((code) => ERROR_CODES[code].wire);
    assert.equal(new Set(numbers).size, codes.length);
    for (const code of codes) {
      assert.match(code, /^[A-Z]+(_[A-Z]+)*$/);
      assert.ok(ERROR_CODES[code].wire > 0);
      assert.notEqual(ERROR_CODES[code].summary, '');
      assert.notEqual(ERROR_CODES[code].next, '');
    }
  });

  it('carries the code over the wire and back', () => {
    for (const code of codes.filter((name) => ERROR_CODES[name].wire < FIRST_LOCAL_CODE)) {
      assert.equal(errorFromWire(wireCode(code), 'why').code, code);
    }
  });

  it('never sends a local code', () => {
    assert.equal(wireCode('CONFIG_INVALID'), ERROR_CODES.INTERNAL.wire);
    assert.equal(errorFromWire(ERROR_CODES.CONFIG_INVALID.wire, 'why').code, 'INTERNAL');
  });

  it('turns a number that it does not know into INTERNAL and keeps the number', () => {
    const err = errorFromWire(999, 'from a newer version', { details: { peer: 'p' } });
    assert.equal(err.code, 'INTERNAL');
    assert.deepEqual(err.details, { peer: 'p', wire: 999 });
    assert.equal(err.message, 'from a newer version');
  });

  it('keeps the cause, and has none when none was given', () => {
    const cause = new Error('below');
    assert.equal(new MeshnetError('INTERNAL', 'above', { cause }).cause, cause);
    assert.equal(Object.hasOwn(new MeshnetError('INTERNAL'), 'cause'), false);
  });

  it('recognises its own errors by code and wraps foreign ones', () => {
    const own = new MeshnetError('BUSY');
    const foreign = new TypeError('not ours');
    assert.equal(toMeshnetError(own), own);
    assert.ok(isMeshnetError(own, 'BUSY'));
    assert.ok(!isMeshnetError(own, 'NO_ROUTE'));
    assert.ok(!isMeshnetError(foreign));
    assert.equal(toMeshnetError(foreign).code, 'INTERNAL');
    assert.equal(toMeshnetError(foreign).cause, foreign);
    assert.equal(toMeshnetError('just text').message, 'just text');
  });

  it('tells a person the code, what happened, the facts and what to do', () => {
    const err = new MeshnetError('SEAM_TIMEOUT', 'the peer sent nothing', {
      details: { peer: 'pi5', layers: [20, 28], bytes: 7n, unset: undefined },
    });
    assert.equal(
      formatError(err),
      'E_SEAM_TIMEOUT: the peer sent nothing (peer pi5, layers [20,28], bytes 7). ' +
        'Fail the session and avoid that stage for a while.',
    );
    assert.match(formatError(new Error('odd!')), /^E_INTERNAL: odd! /);
  });
});
