import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buildStock, generatedModel, lines, program, UPSTREAM_ATTENTION } from './support/programs.ts';

const BUILD_MS = 600_000;
const RUN_MS = 120_000;
const LISTEN_MS = 20_000;
const SESSIONS = 3;

interface Answer {
  prefill_ms: number;
  decode_wall_ms: number;
  step_ms: number[];
  tokens: number[][];
  peak_mib: number;
  cpu_s: number;
  compute_ms: number;
  sample_ms: number;
  error?: string;
}

type Line = Record<string, unknown>;

/**
 * Starts a line program, sends it everything and gives its answers; the first is what it says when it is ready. Attention is
 * upstream's, so that answers of both trees can be compared.
 */
async function ask(file: string, args: readonly string[], requests: readonly unknown[]): Promise<Line[]> {
  const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'inherit'], timeout: RUN_MS, env: { ...process.env, ...UPSTREAM_ATTENTION } });
  const code = new Promise((resolve) => { child.once('close', resolve); });
  for (const request of requests) {
    child.stdin.write(`${typeof request === 'string' ? request : JSON.stringify(request)}\n`);
  }
  child.stdin.end();
  const answers = await Array.fromAsync(createInterface({ input: child.stdout }), (line) => JSON.parse(line) as Line);
  assert.equal(await code, 0);
  return answers;
}

function prompt(seed: number, length: number): number[] {
  return Array.from({ length }, (_, i) => (seed * 7919 + i * 104_729) % 32_000);
}

describe('native/bench-programs', function () {
  this.timeout(BUILD_MS);

  const job = { prompts: [prompt(1, 20), prompt(2, 20), prompt(3, 20)], output: 6, sampling: null };
  const sampled = { ...job, sampling: { temperature: 0.8, top_k: 40, top_p: 0.95, seed: 1 } };
  let model = '';
  const ours = program('meshnet-bench-whole');
  const theirs = program('meshnet-bench-whole', 'stock');
  const options = (...more: readonly string[]): string[] =>
    ['--model', model, '--cells', '256', '--sessions', String(SESSIONS), '--ubatch', '16', ...more];
  const whole = (requests: readonly unknown[], ...args: readonly string[]) => ask(ours, options(...args), requests);
  const stock = (requests: readonly unknown[], ...args: readonly string[]) =>
    ask(theirs, options('--batch', '16', ...args), requests);
  const tokens = ([, ...answers]: Line[]) => answers.map((answer) => answer['tokens']);

  before(async () => {
    model = await generatedModel({ type: 'f32', tied: 'yes', layers: 4 });
    await buildStock(['meshnet-bench-whole', 'ggml-rpc-server'], BUILD_MS);
  });

  it('runs jobs one after the other, each as if it were the first', async () => {
    const [ready, first, second] = await whole([job, job]);
    assert.deepEqual([ready?.['ready'], ready?.['n_layer']], [true, 4]);
    assert.ok(Number(ready?.['weight_bytes']) > 1e6 && Number(ready?.['load_ms']) > 0);
    const answer = first as unknown as Answer;
    assert.deepEqual(answer.tokens.map(({ length }) => length), [6, 6, 6]);
    assert.equal(answer.step_ms.length, 5);
    const wall = answer.decode_wall_ms;
    const all = answer.step_ms.reduce((sum, ms) => sum + ms, 0);
    assert.ok(Math.abs(all - wall) < 0.001 * wall, `${all} is not ${wall}`);
    assert.ok(answer.compute_ms > 0 && answer.sample_ms > 0 && answer.compute_ms + answer.sample_ms <= wall);
    assert.ok(answer.prefill_ms > 0 && answer.peak_mib > 10 && answer.cpu_s > 0);
    assert.deepEqual(second?.['tokens'], answer.tokens);
  });

  it('sleeps before each step when it is told to, and counts no time for it', async () => {
    const pause = 200;
    const began = performance.now();
    const [, plain, paused] = await whole([job, { ...job, pause_ms: pause }]);
    const took = performance.now() - began;
    const { step_ms: steps, decode_wall_ms: wall, tokens: ids } = paused as unknown as Answer;
    assert.deepEqual(ids, plain?.['tokens']);
    assert.ok(took >= pause * steps.length);
    assert.ok(wall <= took - pause * steps.length, `${wall} ms of ${took} ms`);
  });

  it('computes in the stock tree what it computes in ours, with one pool of cells and with several', async () => {
    const expected = tokens(await whole([job, sampled]));
    assert.deepEqual(tokens(await stock([job, sampled])), expected);
    assert.deepEqual(tokens(await stock([job], '--kv', 'split', '--cells', '768')), expected.slice(0, 1));
  });

  it('draws the same tokens from the same seed, others from another, and one session unlike the next', async () => {
    const same = { ...sampled, prompts: [prompt(1, 20), prompt(1, 20)] };
    const seeded = { ...same, sampling: { ...same.sampling, seed: 9 } };
    const [first, again, other] = tokens(await whole([same, same, seeded])) as number[][][];
    assert.deepEqual(first, again);
    assert.notDeepEqual(first, other);
    assert.notDeepEqual(first?.[0], first?.[1]);
  });

  it('answers what it cannot do with an error and goes on', async () => {
    const [, ...answers] = await whole([
      'nonsense', '{}', { ...job, prompts: [] }, { ...job, prompts: [[1, 2], [3]] }, { ...job, prompts: [[1, 32_000]] },
      { ...job, prompts: [[2 ** 40]] }, { ...job, prompts: Array.from({ length: SESSIONS + 1 }, () => [1]) },
      { ...job, pause_ms: -1 }, { ...job, output: 0 }, { ...job, output: 70_000 }, { ...job, output: 200 }, { ...job, sampling: { seed: 1 } },
      job,
    ]);
    const last = answers.pop();
    assert.deepEqual(answers.filter(({ error }) => typeof error !== 'string'), []);
    assert.equal(answers.length, 12);
    assert.deepEqual((last as unknown as Answer).tokens, tokens(await whole([job]))[0]);
  });

  it('ends with a reason when it cannot start', async () => {
    const wrong = [
      ['--model', '/nowhere'], ['--cells', '0'], ['--kv', 'none'], ['--what', '1'], ['--rpc', '127.0.0.1:1'],
    ];
    for (const args of wrong) {
      await assert.rejects(lines(ours, options(...args), RUN_MS), { code: 1 }, args.join(' '));
    }
  });

  describe('with RPC servers', () => {
    const servers: ChildProcess[] = [];
    let addresses: string[] = [];

    before(async () => {
      addresses = await Promise.all([0, 1].map(async () => {
        const port = await freePort();
        const args = ['-H', '127.0.0.1', '-p', String(port), '-t', '1'];
        servers.push(spawn(program('ggml-rpc-server', 'stock'), args, { stdio: 'ignore' }));
        await listening(port);
        return `127.0.0.1:${port}`;
      }));
    });
    after(() => { servers.forEach((server) => { server.kill(); }); });

    it('gives the same answer with layers in one server, in two, and with the head at home', async () => {
      const expected = tokens(await whole([job]));
      const [first = '', second = ''] = addresses;
      const half = ['--rpc', first, '--rpc-layers', 'local:2'];
      assert.deepEqual(tokens(await stock([job], ...half)), expected);
      assert.deepEqual(tokens(await stock([job], ...half, '--rpc-output', 'local')), expected);
      assert.deepEqual(tokens(await stock([job], '--rpc', `${first},${second}`)), expected);
    });

    it('refuses to keep every layer', async () => {
      const all = options('--rpc', addresses[0] ?? '', '--rpc-layers', 'local:4');
      await assert.rejects(lines(theirs, all, RUN_MS), { code: 1 });
    });
  });

  it('measures what the machine can do, and probes it', async () => {
    const limits = program('meshnet-bench-limits');
    const args = ['--measure', '--threads', '1', '--seconds', '0.02', '--most', '64'];
    const [line = ''] = await lines(limits, args, RUN_MS);
    const measured = JSON.parse(line) as Line;
    assert.equal(measured['threads'], 1);
    for (const key of ['read_gb_s', 'copy_gb_s', 'f32_gflops']) {
      assert.ok(Number(measured[key]) > 0.1, key);
    }
    assert.equal((measured['read'] as { gb_s: number }[]).at(-1)?.gb_s, measured['read_gb_s']);
    const answers = await ask(limits, ['--probe'], ['', '']);
    assert.equal(answers.length, 2);
    assert.ok(answers.every(({ probe_ms: ms }) => Number(ms) > 1));
    await assert.rejects(lines(limits, ['--measure', '--threads', '500'], RUN_MS), { code: 1 });
  });

  describe('agreement', () => {
    let folder = '';
    const texts = { texts: [prompt(4, 1), prompt(5, 40), { ids: prompt(6, 33) }] };
    const compare = async (args: readonly string[]): Promise<Record<string, number>> => {
      const all = ['--texts', join(folder, 'texts.json'), ...args];
      const [line = ''] = await lines(program('meshnet-bench-agreement'), all, RUN_MS);
      return JSON.parse(line) as Record<string, number>;
    };
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), 'meshnet-agreement-'));
      await writeFile(join(folder, 'texts.json'), JSON.stringify(texts));
    });
    after(() => rm(folder, { recursive: true }));

    it('finds a model equal to itself, and a coarser one the further the coarser it is', async () => {
      const itself = await compare(['--truth', model, '--model', model]);
      assert.deepEqual([itself['rows'], itself['mean_kl'], itself['top1'], itself['max_difference']], [74, 0, 1, 0]);
      const [q8, q4] = await Promise.all(['q8_0', 'q4_0'].map(async (type) =>
        await compare(['--truth', model, '--model', await generatedModel({ type, tied: 'yes', layers: 4 })])));
      for (const figure of ['kl', 'difference']) {
        const mean = Number(q8?.[`mean_${figure}`]);
        assert.ok(0 < mean && mean < Number(q8?.[`max_${figure}`]) && mean < Number(q4?.[`mean_${figure}`]), figure);
      }
    });

    it('takes logits from a file of just the right length', async () => {
      const logits = join(folder, 'logits');
      await writeFile(logits, Buffer.from(Float32Array.from({ length: 74 * 32_000 }, (_, i) => i % 7).buffer));
      const held = await compare(['--logits', logits, '--model', model]);
      assert.equal(held['rows'], 74);
      assert.ok(Number(held['mean_kl']) > 0.1);
      await writeFile(logits, Buffer.alloc(74 * 32_000 * 4 - 1));
      await assert.rejects(compare(['--logits', logits, '--model', model]), { code: 1 });
    });
  });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => { server.once('listening', resolve); });
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => { server.close(resolve); });
  return port;
}

/** Resolves when something accepts there. */
async function listening(port: number): Promise<void> {
  const deadline = performance.now() + LISTEN_MS;
  for (;;) {
    const accepted = await new Promise<boolean>((resolve) => {
      const socket = connect(port, '127.0.0.1');
      socket.once('connect', () => { socket.destroy(); resolve(true); });
      socket.once('error', () => { resolve(false); });
    });
    if (accepted) {
      return;
    }
    assert.ok(performance.now() < deadline, `nothing listens on ${port}`);
    await new Promise((resolve) => { setImmediate(resolve); });
  }
}
