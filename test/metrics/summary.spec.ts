import assert from 'node:assert/strict';
import { quantile, quantilesMs, seamMs, sumBy, type Sample } from '../../src/metrics/summary.ts';

/** As the library gives it: bounds with the numbers at or below them. */
function histogram(...counts: [number | '+Inf', number][]): Sample[] {
  const total = counts.at(-1)?.[1] ?? 0;
  return [
    ...counts.map(([le, value]) => ({ labels: { le }, value, metricName: 'm_bucket' })),
    { labels: {}, value: 12, metricName: 'm_sum' }, { labels: {}, value: total, metricName: 'm_count' },
  ];
}

describe('metrics/summary', () => {
  it('estimates a quantile inside its bucket', () => {
    const samples = histogram([1, 0], [2, 10], [4, 20], ['+Inf', 20]);
    assert.equal(quantile(0.25, samples), 1.5);
    assert.equal(quantile(0.5, samples), 2);
    assert.equal(quantile(0.75, samples), 3);
    assert.equal(quantile(1, samples), 4);
  });

  it('starts the first bucket at 0, and passes empty ones over', () => {
    assert.equal(quantile(0.5, histogram([1, 4], [2, 4], ['+Inf', 4])), 0.5);
    assert.equal(quantile(0.75, histogram([1, 2], [2, 2], [4, 4], ['+Inf', 4])), 3);
  });

  it('gives the last bound for what lies beyond it', () => {
    assert.equal(quantile(0.95, histogram([1, 1], [2, 1], ['+Inf', 9])), 2);
  });

  it('says nothing of an empty histogram', () => {
    assert.equal(quantile(0.5, histogram([1, 0], ['+Inf', 0])), undefined);
    assert.equal(quantile(0.5, []), undefined);
    assert.equal(quantilesMs(histogram([1, 0], ['+Inf', 0])), undefined);
    assert.equal(seamMs([]), undefined);
  });

  it('gives seconds as milliseconds', () => {
    assert.deepEqual(quantilesMs(histogram([1, 0], [2, 100], ['+Inf', 100])), { p50: 1500, p95: 1950 });
  });

  it('gives the mean of a step by part, all stages together', () => {
    const of = (stage: string, part: string, sum: number, count: number): Sample[] => [
      { labels: { stage, part }, value: sum, metricName: 's_sum' }, { labels: { stage, part }, value: count, metricName: 's_count' },
      { labels: { stage, part, le: 1 }, value: count, metricName: 's_bucket' },
    ];
    // Four steps, of which two had a second stage.
    const samples = [
      ...of('0', 'queue', 0, 4), ...of('0', 'compute', 0.25, 4), ...of('0', 'handover', 0.5, 4),
      ...of('1', 'queue', 1, 2), ...of('1', 'compute', 0.25, 2), ...of('1', 'handover', 0.5, 2), ...of('ring', 'network', 2, 4),
    ];
    assert.deepEqual(seamMs(samples), { queue: 250, compute: 125, handover: 250, network: 500 });
  });

  it('sums by a label', () => {
    assert.deepEqual(sumBy('by', [
      { labels: { by: 'a', reason: 'x' }, value: 1 }, { labels: { by: 'b', reason: 'x' }, value: 2 }, { labels: { by: 'a', reason: 'y' }, value: 3 },
    ]), { a: 4, b: 2 });
  });
});
