import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isMeshnetError } from '../../src/errors.ts';
import { depthOf, parseJsonBody } from '../../src/gateway/json-body.ts';

const invalid = (err: unknown): boolean => isMeshnetError(err, 'REQUEST_INVALID') && err.details.param === 'body';

describe('gateway/json-body', () => {
  it('reads an object', () => {
    assert.deepEqual(parseJsonBody(Buffer.from('{"a":[1,"é"]}')), { a: [1, 'é'] });
  });

  it('refuses what is no object, no JSON or no UTF-8', () => {
    for (const text of ['', '[]', 'null', '5', '"x"', '{', '{a:1}', '{"a":1}x']) {
      assert.throws(() => parseJsonBody(Buffer.from(text)), invalid, text);
    }
    assert.throws(() => parseJsonBody(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d)), invalid);
  });

  it('refuses deep nesting before it parses', () => {
    const nested = (depth: number): Buffer => Buffer.from(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`);
    assert.ok(parseJsonBody(nested(32)));
    assert.throws(() => parseJsonBody(nested(33)), invalid);
    assert.throws(() => parseJsonBody(Buffer.from('['.repeat(1_000_000))), invalid);
  });

  it('counts the depth of any JSON, brackets in strings left out', () => {
    const depth = (value: unknown): number => typeof value === 'object' && value !== null
      ? 1 + Math.max(0, ...Object.values(value).map(depth))
      : 0;
    fc.assert(fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
      assert.equal(depthOf(JSON.stringify(value)), depth(value));
    }));
  });
});
