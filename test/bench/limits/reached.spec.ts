import assert from 'node:assert/strict';
import { llamaRecipe } from '../../../bench/limits/arithmetic.ts';
import { laneReached } from '../../../bench/limits/lane-limits.ts';
import { computingLimit, readingLimit, type MachineLimits } from '../../../bench/limits/machine-limits.ts';
import { reached, reachedLine } from '../../../bench/limits/reached.ts';
import { smallShape } from './shapes.ts';

const MIB = 1024 * 1024;
const limits: MachineLimits = {
  threads: 1, features: [], copy_gb_s: 8, f32_gflops: 100, int8_gops: 400, amx_int8_gops: 1600,
  read: [{ mib: 16, gb_s: 30 }, { mib: 256, gb_s: 12 }, { mib: 1024, gb_s: 16 }, { mib: 2048, gb_s: 10 }],
};
const WORK = { weightBytes: { Q4_0: 600e6 }, kvBytes: 0, bytes: 600e6, matrixOps: 2e9, attentionOps: 0, ops: 2e9 };

describe('bench/limits/reached', () => {
  it('takes the bandwidth of sets that are at least as large', () => {
    assert.equal(readingLimit(limits, 1), 30);
    assert.equal(readingLimit(limits, 16 * MIB + 1), 16);
    assert.equal(readingLimit(limits, 600e6), 16);
    assert.equal(readingLimit(limits, 1025 * MIB), 10);
    assert.equal(readingLimit(limits, 4096 * MIB), 10);
  });

  it('takes the best instruction for a number format, with and without tiles', () => {
    assert.equal(computingLimit(limits, 'int8'), 1600);
    assert.equal(computingLimit(limits, 'int8', false), 400);
    assert.equal(computingLimit(limits, 'bf16'), 100);
    assert.equal(computingLimit(limits, 'f32'), 100);
  });

  it('says which limit is nearer and how near', () => {
    const slow = reached({ work: WORK, ms: 75, arithmetic: 'int8', limits });
    assert.equal(slow.gbS, 8);
    assert.equal(slow.readingShare, 0.5);
    assert.equal(slow.binds, 'reading');
    assert.equal(slow.share, 0.5);
    const heavy = reached({ work: { ...WORK, ops: 6e9 }, ms: 75, arithmetic: 'f32', limits });
    assert.equal(heavy.binds, 'computing');
    assert.equal(heavy.share, 0.8);
  });

  it('prints both', () => {
    assert.equal(
      reachedLine('q4_0', 75, reached({ work: WORK, ms: 75, arithmetic: 'int8', limits })),
      'q4_0: 75.00 ms; reads 600 MB at 8.0 GB/s = 50 % of 16.0; ' +
        '2.00 Gop at 26.7 Gop/s = 1.7 % of 1600 (400 without tiles); reading binds',
    );
  });

  it('knows what a format multiplies with', async () => {
    assert.deepEqual(llamaRecipe(await smallShape({ tied: true })), { arithmetic: 'int8' });
  });

  it('gives a lane of one system its shares', async () => {
    const shape = await smallShape({ tied: true });
    const lane = { shape, recipe: llamaRecipe(shape), limits, context: 8, output: 4, sessions: 2, ubatch: 512 };
    const { decode, prefill, lines } = laneReached('q8_0', lane, { stepMs: 1, prefillMs: 2 });
    assert.ok(decode.ops < prefill.ops);
    assert.deepEqual(lines.map((line) => line.split(':')[0]), ['q8_0 decode step', 'q8_0 prefill']);
  });
});
