import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../../src/config.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { DEFAULT_MODEL } from '../../src/model/catalogue.ts';
import { configuredModels } from '../../src/model/configured.ts';
import { buildStock, generatedModel, lines, program, UPSTREAM_ATTENTION } from './support/programs.ts';

const MINUTE_MS = 60_000;
const BUILD_MS = 20 * MINUTE_MS;
const PARITY_MS = 15 * MINUTE_MS;
const TYPES = ['f32', 'f16', 'q8_0', 'q4_0', 'q4_K'];
/** "The capital of France is", by the default vocabulary's tokeniser or any other: only equality matters. */
const PROMPT = '1,450,7483,310,3444,338';

interface Summary {
  equal: boolean;
  chains: number;
  rows: number;
  different: number;
  greedy: number;
  greedy_changes: number;
  joins: number;
  leaves: number;
  rewinds: number;
  mixed: number;
}

async function parity(model: string, args: string[] = []): Promise<Summary> {
  const output = await lines(program('meshnet-parity'), ['--model', model, ...args], PARITY_MS);
  return JSON.parse(output.at(-1) ?? '') as Summary;
}

function assertEqual(summary: Summary, chains: number): void {
  assert.equal(summary.different, 0);
  assert.equal(summary.equal, true);
  assert.equal(summary.chains, chains);
  assert.equal(summary.greedy, 64);
  // The scenario did what it is for, and the greedy text was not one token for ever.
  for (const count of [summary.rows, summary.joins, summary.leaves, summary.rewinds, summary.mixed]) {
    assert.ok(count > 0);
  }
  assert.ok(summary.greedy_changes > 16);
}

async function smolLM2(): Promise<string | undefined> {
  try {
    const models = configuredModels(loadConfig({}));
    return (await models.resolve(DEFAULT_MODEL, { signal: AbortSignal.timeout(3 * MINUTE_MS) })).path;
  } catch (err) {
    if (isMeshnetError(err, 'SOURCE_UNAVAILABLE')) {
      return undefined;
    }
    throw err;
  }
}

/** Digests of the greedy continuation, one line a row, without the summary. */
async function referenceRows(model: string, build: 'patched' | 'stock', input = ['--tokens', PROMPT, '--predict', '64']): Promise<string[]> {
  const args = ['--model', model, ...input];
  return (await lines(program('meshnet-reference', build), args, 2 * MINUTE_MS, UPSTREAM_ATTENTION)).slice(0, -1);
}

async function splitRows(model: string, cuts: string): Promise<string[]> {
  const args = ['--model', model, '--cuts', cuts, '--tokens', PROMPT, '--greedy', '64', '--ubatch', '256'];
  return lines(program('meshnet-parity'), args, 2 * MINUTE_MS, UPSTREAM_ATTENTION);
}

async function assertMemory(model: string, layers: string): Promise<void> {
  const [line = ''] = await lines(program('meshnet-parity'), ['--model', model, '--memory', layers], MINUTE_MS);
  const { ok, pss, limit } = JSON.parse(line) as { ok: boolean; pss: number; limit: number };
  assert.equal(ok, true, `PSS of layers ${layers} is ${pss}, the bound is ${limit}`);
}

describe('native/parity', function () {
  this.timeout(PARITY_MS);
  let smol: string | undefined;
  let scratch = '';
  const available = (context: Mocha.Context): string => smol ?? context.skip();

  before(async function () {
    this.timeout(BUILD_MS);
    scratch = mkdtempSync(join(tmpdir(), 'meshnet-parity-'));
    await buildStock(['meshnet-reference'], BUILD_MS);
    smol = await smolLM2();
  });

  after(() => rmSync(scratch, { recursive: true, force: true }));

  for (const type of TYPES) {
    for (const tied of ['yes', 'no']) {
      it(`splits a ${type} model, tied ${tied}, at every boundary without changing a bit`, async () => {
        assertEqual(await parity(await generatedModel({ layers: 6, type, tied })), 9);
      });
    }
  }

  it('loads each shard from a file that is a hole wherever the shard owns nothing', async () => {
    const model = await generatedModel({ layers: 16, type: 'q4_0', tied: 'yes' });
    const args = ['--cuts', '1;8;15;5,11', '--sparse', scratch, '--ubatch', '17', '--kv', 'f32'];
    assertEqual(await parity(model, args), 4);
  });

  it('splits without changing a bit when two threads compute', async () => {
    const model = await generatedModel({ layers: 6, type: 'q8_0', tied: 'yes' });
    assertEqual(await parity(model, ['--cuts', '3', '--threads', '2', '--seed', '2']), 1);
  });

  it('splits SmolLM2 at every boundary without changing a bit', async function () {
    const model = available(this);
    assertEqual(await parity(model), 33);
  });

  for (const hook of ['swap-seq', 'skip-clear']) {
    it(`would see the fault ${hook}`, async () => {
      const model = await generatedModel({ layers: 6, type: 'f16', tied: 'no' });
      await assert.rejects(parity(model, ['--cuts', '3', '--hook', hook]), (err: { code?: unknown; stdout?: unknown }) => {
        assert.equal(err.code, 1);
        assert.match(String(err.stdout), /"equal":false/);
        return true;
      });
    });
  }

  for (const type of TYPES) {
    it(`computes a ${type} model, whole or split, as llama.cpp without patches does`, async () => {
      const model = await generatedModel({ layers: 6, type, tied: 'no' });
      const stock = await referenceRows(model, 'stock');
      assert.deepEqual(await referenceRows(model, 'patched'), stock);
      assert.deepEqual((await splitRows(model, '2,4')).slice(0, stock.length), stock);
    });
  }

  for (const type of ['q8_0', 'q4_0']) {
    it(`multiplies any number of rows with ${type} weights as llama.cpp without patches does`, async () => {
      // 96 and 352 leave half a block of columns over; 8,480 are more than one pass of a row's sums.
      // 71 rows are two full blocks of 32 and a part of one.
      for (const ffn of [352, 8480]) {
        const model = await generatedModel({ layers: 2, type, tied: 'no', embd: 96, heads: 3, 'kv-heads': 1, ffn });
        const prompt = Array.from({ length: 71 }, (_, i) => 10 + 7 * i).join(',');
        for (const [ubatch, threads] of [
          [1, 1], [2, 1], [2, 2], [3, 1], [3, 2], [4, 1], [5, 1], [6, 2], [7, 1], [16, 2], [17, 1], [32, 1], [71, 1], [71, 2],
        ] as const) {
          const input = ['--tokens', prompt, '--predict', '2', '--ubatch', String(ubatch), '--threads', String(threads)];
          const rows = await referenceRows(model, 'patched', input);
          assert.equal(rows.length, 2);
          assert.deepEqual(rows, await referenceRows(model, 'stock', input), `${ubatch} rows, ${ffn} columns`);
        }
      }
    });
  }

  it('computes SmolLM2, whole or split, as llama.cpp without patches does', async function () {
    const model = available(this);
    const stock = await referenceRows(model, 'stock');
    assert.deepEqual(await referenceRows(model, 'patched'), stock);
    assert.deepEqual((await splitRows(model, '15')).slice(0, stock.length), stock);
  });

  it('holds no more memory than its shard, with weights that are repacked too', async () => {
    const model = await generatedModel({ preset: '1b' });
    await assertMemory(model, '0-11');
    await assertMemory(model, '11-22');
  });

  it('holds no more memory than its shard of SmolLM2', async function () {
    const model = available(this);
    for (const layers of ['0-15', '15-30', '10-20']) {
      await assertMemory(model, layers);
    }
  });

  it('generates the same bytes from the same options', async () => {
    const digest = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');
    const again = join(scratch, 'again.gguf');
    const first = await generatedModel({ layers: 2, type: 'q4_K' });
    await lines(program('meshnet-testmodel'), ['--out', again, '--layers', '2', '--type', 'q4_K'], MINUTE_MS);
    assert.equal(digest(again), digest(first));
    await lines(program('meshnet-testmodel'), ['--out', again, '--layers', '2', '--type', 'q4_K', '--seed', '2'], MINUTE_MS);
    assert.notEqual(digest(again), digest(first));
  });
});
