import assert from 'node:assert/strict';
import fc from 'fast-check';
import { LIMITS } from '../../src/domain/limits.ts';
import { assertRangeInside, formatLayerRange, parseLayerRange, rangesOverlap, uniformCuts } from '../../src/domain/shard.ts';
import { isMeshnetError } from '../../src/errors.ts';

const invalid = (err: unknown): boolean => isMeshnetError(err, 'RANGE_INVALID');
const layer = fc.integer({ min: 0, max: LIMITS.layersPerModel });
const range = fc.tuple(layer, layer).filter(([first, last]) => first < last).map(([first, last]) => ({ first, last }));

describe('domain/shard', () => {
  it('reads what it writes', () => {
    fc.assert(fc.property(range, (one) => {
      assert.deepEqual(parseLayerRange(` ${formatLayerRange(one)} `), one);
    }));
  });

  it('refuses what is no half-open range', () => {
    for (const text of ['', '5', '5-5', '6-5', '-1-5', '1-2-3', 'a-b', '0-1025', '0x1-5', '1.5-2', '99999-100000']) {
      assert.throws(() => parseLayerRange(text), invalid, text);
    }
  });

  it('holds a range against the model', () => {
    assertRangeInside({ first: 0, last: 12 }, 12);
    for (const [first, last] of [[0, 13], [-1, 3], [5, 5], [7, 5], [Number.NaN, 3]] as const) {
      assert.throws(() => assertRangeInside({ first, last }, 12), invalid);
    }
  });

  it('sees an overlap from both sides, and none where ranges only meet', () => {
    fc.assert(fc.property(range, range, (a, b) => {
      const shared = Math.min(a.last, b.last) - Math.max(a.first, b.first);
      assert.equal(rangesOverlap(a, b), shared > 0);
      assert.equal(rangesOverlap(b, a), shared > 0);
    }));
  });

  it('cuts a model into parts that cover it once and differ by a layer at most', () => {
    fc.assert(fc.property(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 1, max: LIMITS.stagesPerRoute }), (nLayer, stages) => {
      fc.pre(stages <= nLayer);
      const cuts = uniformCuts(nLayer, stages);
      assert.equal(cuts.length, stages);
      assert.deepEqual(cuts.flatMap(({ first, last }) => Array.from({ length: last - first }, (_, i) => first + i)),
        Array.from({ length: nLayer }, (_, i) => i));
      const sizes = cuts.map(({ first, last }) => last - first);
      assert.ok(Math.max(...sizes) - Math.min(...sizes) <= 1);
      assert.deepEqual(sizes, sizes.toSorted((a, b) => b - a));
    }));
  });

  it('refuses more stages than there are layers or a route may have', () => {
    for (const [nLayer, stages] of [[4, 5], [100, 17], [4, 0], [4, 1.5], [4, Number.NaN]] as const) {
      assert.throws(() => uniformCuts(nLayer, stages), invalid);
    }
  });
});
