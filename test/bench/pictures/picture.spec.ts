import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { draw, pngOf, svgOf, type Picture } from '../../../bench/pictures/picture.ts';
import { picturesOf } from '../../../bench/pictures/pictures.ts';
import { readRecords, type BenchRecord } from '../../../bench/runner/record.ts';
import { aLane, aRecord } from '../runner/some-record.ts';

const WIDTH = 1800;

/** The size that a PNG says it has. */
function sizeOf(png: Buffer): [width: number, height: number] {
  assert.equal(png.subarray(1, 4).toString('latin1'), 'PNG');
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

/** Two delays, one session: what gate 5 is drawn by. */
function overDelay(): BenchRecord {
  const lanes = [0, 20].map((delay) => {
    const runs = { local: { step_p50_ms: 30, decode: 33 }, ours: { step_p50_ms: 31 + 2 * delay, decode: 32 - delay / 2 } };
    return aLane({
      key: { model: '1b', sessions: 1, delay }, systems: ['local', 'ours'],
      rounds: [{ order: ['local', 'ours'], probe: 1, pressure: { load: 0 }, wallMs: 1, runs }],
      ratios: { 'decode/ours_over_local': { median: 0.9, low: 0.8, high: 1, n: 5 } },
    });
  });
  return aRecord({ bench: 'gate5', lanes });
}

describe('bench/pictures/picture', () => {
  it('draws bars with their names, figures and bounds, and a line for each interval', () => {
    const bars: Picture = {
      kind: 'bars', name: 'x', title: 'A title', subtitle: 'below it', y: 'ratio', groups: ['one / lane', 'two'],
      series: [{ name: 'ours', values: [{ median: 1.25, low: 1, high: 1.5, n: 5 }, 0.5] }], bounds: [{ name: 'R1: 0.9', value: 0.9 }],
    };
    const svg = svgOf(bars);
    for (const text of ['A title', 'below it', '>ratio<', '>one<', '>lane<', '>two<', '>ours<', '>1.25<', '>R1: 0.9<']) {
      assert.ok(svg.includes(text), text);
    }
    const bare = svgOf({ ...bars, series: [{ name: 'ours', values: [1.25, 0.5] }] });
    // The stem and its two ends.
    assert.equal(svg.split('stroke="#222222"').length - bare.split('stroke="#222222"').length, 3);
  });

  it('makes a PNG of it with letters, at twice its size', () => {
    const svg = (text: string): string =>
      '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="50">' +
      `<rect width="900" height="50" fill="#fff"/><text x="9" y="30">${text}</text></svg>`;
    assert.deepEqual(sizeOf(pngOf(svg('abc'))), [WIDTH, 100]);
    assert.notDeepEqual(pngOf(svg('abc')), pngOf(svg('')));
  });

  it('draws the committed results', () => {
    const first = ['seam', 'split'].map((bench) => readRecords(`bench/results/${bench}.jsonl`)[0] as BenchRecord);
    assert.deepEqual(first.flatMap(picturesOf).map(({ name }) => name), ['seam-added', 'seam-over_tcp', 'split-decode', 'split-prefill']);
  });

  it('draws the time of a token over the delay with the law, and both files of each picture', async () => {
    const pictures = picturesOf(overDelay());
    assert.deepEqual(pictures.map(({ name }) => name), ['gate5-decode', 'gate5-token-over-delay', 'gate5-decode-over-delay']);
    const law = pictures.flatMap((one) => one.kind === 'lines' ? one.series : []).find(({ name }) => name === 'local + 2 D');
    assert.deepEqual(law?.points, [[0, 30], [20, 70]]);
    const dir = await mkdtemp(join(tmpdir(), 'meshnet-picture-'));
    try {
      const files = draw(pictures, dir);
      assert.equal(files.length, 6);
      assert.match(await readFile(join(dir, 'gate5-token-over-delay.svg'), 'utf8'), /^<svg .*one-way delay/s);
      assert.equal(sizeOf(await readFile(join(dir, 'gate5-token-over-delay.png')))[0], WIDTH);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });
});
