import assert from 'node:assert/strict';
import { fromWireError, toWireError } from '../../src/domain/wire-error.ts';
import { LIMITS } from '../../src/domain/limits.ts';
import { MeshnetError } from '../../src/errors.ts';

describe('domain/wire-error', () => {
  it('brings code, message, facts and the retry hint across', () => {
    const sent = new MeshnetError('NO_CAPACITY', 'no cells', {
      details: { required: 96, available: 12n, why: 'cells', busy: true, nested: { a: 1 }, retryAfterMs: 250.2, faultStage: 2 },
    });
    const got = fromWireError(toWireError(sent));
    assert.equal(got.code, 'NO_CAPACITY');
    assert.equal(got.message, 'no cells');
    assert.deepEqual(got.details, {
      required: '96', available: '12', why: 'cells', busy: 'true', retryAfterMs: 251, faultStage: 2,
    });
  });

  it('sends a local code as INTERNAL and names it', () => {
    const wire = toWireError(new MeshnetError('FILE_INVALID', 'broken', { details: { path: 'x' } }), 3);
    assert.equal(wire.faultStage, 3);
    const got = fromWireError(wire);
    assert.deepEqual([got.code, got.details['code'], got.details['faultStage']], ['INTERNAL', 'FILE_INVALID', 3]);
    assert.equal(fromWireError(toWireError(new RangeError('oops'))).code, 'INTERNAL');
  });

  it('bounds what it sends and what it takes', () => {
    const details = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`k${i}`, 'v'.repeat(500)]));
    const wire = toWireError(new MeshnetError('MALFORMED', 'ä'.repeat(1000), { details }));
    assert.ok(Buffer.byteLength(wire.message) <= LIMITS.errorMessageBytes);
    assert.equal(wire.details.length, LIMITS.errorDetails);
    wire.message = 'ü'.repeat(5000);
    wire.details = Array.from({ length: 100 }, (_, i) => ({ ...wire.details[0]!, key: `k${i}`, value: 'v'.repeat(9999) }));
    const got = fromWireError(wire);
    assert.ok(Buffer.byteLength(got.message) <= LIMITS.errorMessageBytes);
    assert.equal(Object.keys(got.details).length, LIMITS.errorDetails);
    assert.ok(Object.values(got.details).every((value) => String(value).length <= 128));
  });

  it('does not let a peer name a code that never travels, or one that nobody knows', () => {
    const wire = toWireError(new MeshnetError('MALFORMED'));
    wire.code = 1004 as number;
    assert.deepEqual([fromWireError(wire).code, fromWireError(wire).details['wire']], ['INTERNAL', 1004]);
    wire.code = 700 as number;
    assert.deepEqual([fromWireError(wire).code, fromWireError(wire).details['wire']], ['INTERNAL', 700]);
  });
});
