import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { uniformCuts } from '../../src/domain/shard.ts';
import { TextProcess } from '../../src/worker/text-process.ts';
import { buildStock, program } from '../native/support/programs.ts';
import { CACHE, LAYERS, READY_MS, resolveModel } from './support/mesh.ts';
import { Command, lastJson, meshnet, processesOf, until, type Finished } from './support/processes.ts';

interface DemoAnswer {
  text: string;
  completion_tokens: number;
  ttft_ms: number;
  tokens_per_second: number;
  model: string;
  route: { epoch: number; stages: { peer: string; layers: [number, number]; path: string }[] };
}

const SMOLLM2 = 'smollm2-135m-instruct';
const run = promisify(execFile);

describe('mesh/demo', function () {
  this.timeout(2 * READY_MS);
  let root = '';

  before(async function () {
    this.timeout(20 * 60_000);
    root = mkdtempSync(join(tmpdir(), 'meshnet-demo-spec-'));
    if (!existsSync(program('meshnet-reference', 'stock'))) {
      await buildStock(['meshnet-reference'], 20 * 60_000);
    }
  });

  after(() => rmSync(root, { recursive: true, force: true }));

  /** Whatever the demo makes lies below `root`, and its processes name it. */
  const env = (): Record<string, string> => ({ TMPDIR: root, MESHNET_CACHE_DIR: CACHE, MESHNET_DATA_DIR: join(root, 'data') });
  const demo = (args: readonly string[]): Promise<Finished> => meshnet(['demo', ...args], { env: env(), timeoutMs: READY_MS });

  const assertGone = async (): Promise<void> => {
    await until(`nothing is left running: ${processesOf(root).join('; ')}`, () => processesOf(root).length === 0 || undefined, 10_000);
    assert.deepEqual(readdirSync(root).filter((name) => name.startsWith('meshnet-demo-')), []);
  };

  /** The greedy answer of the whole model to the same prompt, by our llama.cpp or by the unpatched one. */
  const reference = async (model: string, question: string, predict: number, build?: 'stock'): Promise<string> => {
    const { path } = await resolveModel(model);
    const text = new TextProcess({ binary: program('meshnet-worker'), runtimeDir: join(root, 'text'), model: path });
    text.start();
    try {
      const options = { signal: AbortSignal.timeout(60_000) };
      await text.ready(options);
      const { ids } = await text.render({ messages: [{ role: 'user', content: question }], addGenerationPrompt: true }, options);
      const args = ['--model', path, '--tokens', ids.join(','), '--predict', String(predict)];
      const { stdout } = await run(program('meshnet-reference', build), args, { timeout: 120_000, maxBuffer: 64 * 1024 * 1024 });
      const { tokens } = lastJson(stdout) as { tokens: number[] };
      return Buffer.concat(await text.pieces(tokens, options)).toString();
    } finally {
      await text.stop();
    }
  };

  for (const stages of [2, 3]) {
    it(`splits the model over ${stages} shards, answers as the whole of it and leaves nothing behind`, async () => {
      const question = 'Where does the sun go at night?';
      const { code, stdout, stderr } = await demo(['--model', 'test', '--stages', String(stages), '-p', question, '--max-tokens', '24', '--json']);
      assert.equal(code, 0, stderr);
      const answer = lastJson(stdout) as DemoAnswer;
      assert.deepEqual(Object.keys(answer), ['text', 'completion_tokens', 'ttft_ms', 'tokens_per_second', 'model', 'route']);
      assert.equal(answer.text, await reference('test', question, 24));
      assert.equal(answer.completion_tokens, 24);
      assert.ok(answer.ttft_ms > 0 && answer.tokens_per_second > 0);
      assert.equal(answer.model, 'test');
      assert.equal(answer.route.epoch, 1);
      const cuts = uniformCuts(LAYERS, stages).map(({ first, last }) => [first, last]);
      assert.deepEqual(answer.route.stages.map(({ layers }) => layers), cuts);
      assert.deepEqual(answer.route.stages.map(({ path }) => path), cuts.map((_, i) => i === 0 ? 'libp2p' : 'direct-grpc'));
      assert.equal(new Set(answer.route.stages.map(({ peer }) => peer)).size, stages);
      await assertGone();
    });
  }

  it('answers with SmolLM2 by default, as stock llama.cpp does', async function () {
    this.timeout(10 * 60_000);
    await resolveModel(SMOLLM2);
    const { code, stdout, stderr } = await demo(['--json']);
    assert.equal(code, 0, stderr);
    const { text, model } = lastJson(stdout) as DemoAnswer;
    assert.equal(text, 'The capital of France is Paris.');
    assert.equal(text, await reference(SMOLLM2, 'What is the capital of France? Answer in one sentence.', 64, 'stock'));
    assert.equal(model, SMOLLM2);
    await assertGone();
  });

  it('prints for people, stays with --keep, and ends all of it in order by Ctrl-C', async () => {
    const kept = new Command(['demo', '--model', 'test', '--max-tokens', '4', '--keep'], { env: env(), timeoutMs: READY_MS });
    const base = await until('the mesh stays up', () => /OpenAI API at (\S+)\/v1/.exec(kept.output)?.[1], READY_MS);
    const response = await fetch(`${base}/v1/models`, { signal: AbortSignal.timeout(10_000) });
    assert.equal(((await response.json()) as { data: { id: string }[] }).data[0]?.id, 'test');
    kept.interrupt();
    const { code, stdout, stderr } = await kept.finished;
    assert.equal(code, 0, stderr);
    assert.notEqual(stdout.trim(), '', 'the answer, and nothing else');
    assert.doesNotMatch(stdout, /stage|token/);
    assert.match(stderr, /stage 0 .* layers 0-4 .*\nstage 1 .* layers 4-8 /);
    assert.match(stderr, /first token after \d+ ms · [\d.]+ tokens\/s · 4 tokens/);
    await assertGone();
  });

  for (const how of ['interrupt', 'terminate'] as const) {
    it(`leaves nothing behind when it is told to ${how} in the middle of the start`, async () => {
      const cut = new Command(['demo', '--model', 'test'], { env: env(), timeoutMs: READY_MS });
      await until('the shards are being started', () => processesOf(root).some((line) => line.includes('shard-1')) || undefined, READY_MS);
      cut[how]();
      // As npm does with what it runs.
      cut[how]();
      const { code, stderr } = await cut.finished;
      assert.equal(code, 130, stderr);
      assert.match(stderr, /^E_CANCELLED: /m);
      await assertGone();
    });
  }

  it('takes its nodes and their workers with it when it is killed', async () => {
    const killed = new Command(['demo', '--model', 'test'], { env: env(), timeoutMs: READY_MS });
    await until('the shards are being started', () => processesOf(root).some((line) => line.includes('shard-1')) || undefined, READY_MS);
    killed.kill();
    await killed.finished;
    await until('nothing is left running', () => processesOf(root).length === 0 || undefined);
  });

  it('says in one line what cannot be done', async () => {
    for (const [args, code, wanted] of [
      [['--model', 'no-such-model'], 1, 'MODEL_UNKNOWN'],
      [['--model', 'test', '--stages', '9'], 2, 'RANGE_INVALID'],
    ] as const) {
      const found = await demo([...args, '--json']);
      assert.equal(found.code, code, found.stderr);
      assert.equal((lastJson(found.stdout) as { error: { code: string } }).error.code, wanted);
      assert.equal(found.stderr.match(/^E_/gm)?.length, 1);
    }
    assert.deepEqual(processesOf(root), []);
  });
});
