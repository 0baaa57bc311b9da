import assert from 'node:assert/strict';
import fc from 'fast-check';
import { median, medianInterval, quantile, round } from '../../../bench/runner/statistics.ts';

describe('bench/runner/statistics', () => {
  it('takes the middle value, or the mean of the two in the middle', () => {
    assert.equal(median([3, 1, 2]), 2);
    assert.equal(median([4, 1, 2, 3]), 2.5);
    assert.ok(Number.isNaN(median([])));
  });

  it('takes a quantile without changing its values', () => {
    const values = [5, 1, 4, 2, 3];
    assert.deepEqual([quantile(values, 0), quantile(values, 0.5), quantile(values, 0.95)], [1, 3, 5]);
    assert.deepEqual(values, [5, 1, 4, 2, 3]);
  });

  it('gives the same interval for the same values, around their median and within them', () => {
    fc.assert(fc.property(fc.array(fc.double({ min: 0.1, max: 10, noNaN: true }), { minLength: 1, maxLength: 9 }), (values) => {
      const [low, high] = medianInterval(values, 200);
      assert.deepEqual(medianInterval(values, 200), [low, high]);
      assert.ok(Math.min(...values) <= low && low <= median(values));
      assert.ok(median(values) <= high && high <= Math.max(...values));
    }), { numRuns: 50, seed: 7 });
  });

  it('rounds to significant digits', () => {
    assert.deepEqual([round(0.123_456), round(1234.56), round(0.000_012_345, 2)], [0.1235, 1235, 0.000_012]);
  });
});
