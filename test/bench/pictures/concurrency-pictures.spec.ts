import assert from 'node:assert/strict';
import { concurrencyPictures } from '../../../bench/pictures/concurrency-pictures.ts';
import { svgOf, type LinePicture } from '../../../bench/pictures/picture.ts';
import type { LaneRecord } from '../../../bench/runner/lane-record.ts';
import type { BenchRecord } from '../../../bench/runner/record.ts';
import { aLane, aRecord } from '../runner/some-record.ts';

function lane(sessions: number, delay: number): LaneRecord {
  const runs = { one8: { decode: 60 }, mesh: { decode: 10 * sessions, step_p50_ms: 80, step_p95_ms: 100 + delay } };
  return aLane({
    key: { model: '1b', prompt: 32, sessions, delay }, systems: ['one8', 'mesh'],
    rounds: [{ order: ['one8', 'mesh'], probe: 1, pressure: { load: 0 }, wallMs: 1, runs }],
    ratios: { [`mesh${sessions}_over_one8_${delay}ms`]: { median: sessions / 6, low: sessions / 7, high: sessions / 5, n: 5 } },
    limits: { ring: { group: 1, tokS: 12 * sessions, tokenMs: 70 } },
  });
}

function record(lanes: readonly LaneRecord[]): BenchRecord {
  return aRecord({ bench: 'concurrency', lanes });
}

describe('bench/pictures/concurrency-pictures', () => {
  const pictures = concurrencyPictures(record([lane(8, 0), lane(1, 0), lane(8, 20), lane(1, 20), lane(8, 50)]), 'below');

  it('draws a line for each delay that has two points, theory dashed in its colour, and one process across', () => {
    assert.deepEqual(pictures.map(({ name }) => name), [
      'concurrency-speed', 'concurrency-speed-over-one-process', 'concurrency-token-p50', 'concurrency-token-p95', 'concurrency-judged',
    ]);
    const [speed] = pictures as [LinePicture];
    assert.deepEqual(speed.series.map(({ name, dashed = false, like }) => [name, dashed, like]), [
      ['0 ms', false, undefined], ['20 ms', false, undefined], ['0 ms, theory', true, '0 ms'], ['20 ms, theory', true, '20 ms'],
      ['one process, 8', true, undefined],
    ]);
    assert.deepEqual(speed.series.at(2)?.points, [[1, 12], [8, 96]]);
    assert.deepEqual(speed.series.at(-1)?.points, [[1, 60], [8, 60]]);
  });

  it('gives a line the colour of the one that it is like, and leaves it out of the legend', () => {
    const svg = svgOf(pictures[0] as LinePicture);
    const dashed = [...svg.matchAll(/<path [^>]*>/g)].filter(([tag]) => tag.includes('stroke-dasharray'));
    const colours = dashed.map(([tag]) => /stroke="(#\w+)"/.exec(tag)?.[1]);
    for (const colour of ['#0072b2', '#e69f00', '#009e73']) {
      assert.ok(colours.includes(colour), colour);
    }
    assert.equal(svg.split('>0 ms, theory<').length - 1, 1);
  });

  it('stands what is judged over its bound, a cost the other way round', () => {
    const judged = concurrencyPictures(record([
      lane(8, 0), aLane({ key: { model: '1b', sessions: 1, delay: 20 }, ratios: { delay_law_20ms: { median: 0.8, low: 0.5, high: 1, n: 5 } } }),
    ]), 'below').find(({ kind }) => kind === 'bars');
    assert.ok(judged?.kind === 'bars');
    assert.deepEqual(judged.groups, ['M.8.0 / ≥ 1.5', 'M.law / ≤ 1']);
    assert.deepEqual(judged.series[0]?.values, [
      { median: 0.8889, low: 0.7619, high: 1.067, n: 5 }, { median: 1.25, low: 1, high: 2, n: 5 },
    ]);
  });

  it('draws nothing of nothing', () => {
    assert.deepEqual(concurrencyPictures(record([]), 'below'), []);
    assert.deepEqual(concurrencyPictures(record([aLane({ key: { question: 'long', model: '1b' }, rounds: [] })]), 'below'), []);
  });
});
