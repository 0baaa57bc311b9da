import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { agreement, type Agreement } from '../../bench/gate1/agreement.ts';
import { buildStock, generatedModel, lines, program } from './support/programs.ts';

const PROGRAM_MS = 120_000;
const TYPES = ['q8_0', 'q4_0', 'q4_1', 'q4_K', 'q6_K'] as const;
const SHAPE = { layers: 4, embd: 256, heads: 4, 'kv-heads': 2, ffn: 768, 'vocab-size': 4096 };
/**
 * What rounding activations to eight bits was seen to cost with AVX512-VNNI kernels, with AMX and with AVX512-FP16 is 0.07 in the worst
 * row and 0.01 nats in the mean. A kernel has to be wrong by more than these to be seen.
 */
const MOST_DIFFERENCE = 0.1;
const MOST_KL = 0.02;
const TEXTS = Array.from({ length: 3 }, (_, text) =>
  Array.from({ length: 64 }, (_, i) => 300 + (i * 977 + text * 131) % (SHAPE['vocab-size'] - 300)));

/**
 * Which kernels compute a product hangs on the processor (AMX, AVX512, repacked or not) and on the number of rows. No
 * single answer can judge them, as two tokens may weigh the same: the distributions are held against float32 of the very
 * same weights.
 */
describe('native/quantised', function () {
  this.timeout(5 * PROGRAM_MS);
  let scratch = '';
  let texts = '';
  before(async () => {
    await buildStock(['llama-quantize'], 4 * PROGRAM_MS);
    scratch = mkdtempSync(join(tmpdir(), 'meshnet-quantised-'));
    texts = join(scratch, 'texts.json');
    writeFileSync(texts, JSON.stringify({ texts: TEXTS }));
  });
  after(() => rmSync(scratch, { recursive: true, force: true }));

  async function inFloat32(model: string): Promise<string> {
    const file = join(scratch, basename(model));
    await lines(program('llama-quantize', 'stock'), ['--allow-requantize', model, file, 'F32'], PROGRAM_MS);
    return file;
  }

  const held = (model: string, truth: string, rows: number): Promise<Agreement> =>
    agreement({ truth: { model: truth }, model, texts, rows, signal: AbortSignal.timeout(PROGRAM_MS) });

  for (const type of TYPES) {
    it(`computes ${type} weights as their float32 values, many rows at once and one by one`, async () => {
      const model = await generatedModel({ ...SHAPE, type });
      const truth = await inFloat32(model);
      for (const rows of [64, 4, 1]) {
        const { mean_kl: kl, max_difference: difference } = await held(model, truth, rows);
        assert.ok(kl <= MOST_KL, `${rows} rows at once: mean KL is ${kl}`);
        assert.ok(difference <= MOST_DIFFERENCE, `${rows} rows at once: a row differs by ${difference}`);
      }
    });
  }

  it('would see weights that are not the same', async () => {
    const truth = await inFloat32(await generatedModel({ ...SHAPE, type: 'q8_0' }));
    // The same random numbers, rounded to half as many bits.
    const { mean_kl: kl, max_difference: difference } = await held(await generatedModel({ ...SHAPE, type: 'q4_0' }), truth, 64);
    assert.ok(difference > MOST_DIFFERENCE && kl > MOST_KL, `KL ${kl}, difference ${difference}`);
  });
});
