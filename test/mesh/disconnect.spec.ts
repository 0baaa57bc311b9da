import assert from 'node:assert/strict';
import { Call } from '../../bench/load/call.ts';
import { WorkerStatus, type Held } from '../../bench/load/worker-status.ts';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { apiOf, healthOf, Mesh, MODEL, READY_MS, resolveModel } from './support/mesh.ts';
import { until } from './support/processes.ts';

/** Positions of a session; an answer of nearly as many does not end by itself. */
const POSITIONS = 4096;
const PROMPT = 16;
const LONG_PROMPT = POSITIONS - 16;
/** Tokens of an answer that is under way. */
const SOME = 5;
/** Times that a prompt is begun to be left in the middle. */
const ATTEMPTS = 5;
/** Sessions that each stage takes. */
const PLACES = 2;

describe('mesh/disconnect', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  let shards: NodeProcess[];
  /** By the word of the workers themselves, stage by stage. */
  let workers: WorkerStatus[] = [];
  let calls: Call[];

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('disconnect');
    gateway = await mesh.gateway(await resolveModel());
    const args = ['--worker-cells', String(PLACES * POSITIONS), '--worker-sequences', String(PLACES)];
    shards = await mesh.halves(gateway, args);
    workers = await Promise.all(shards.map(async (shard) => WorkerStatus.of((await healthOf(shard))?.shard?.workerPid ?? 0)));
  });

  after(async function () {
    this.timeout(60_000);
    workers.forEach((worker) => { worker.close(); });
    await mesh?.stop();
  });

  beforeEach(() => { calls = []; });
  /** Whatever a test left, the next one finds nothing held. */
  afterEach(async () => {
    calls.forEach((call) => { call.leave(); });
    await frees(workers.map(() => ({ cells: 0, sequences: 0 })));
  });

  const limit = (): AbortSignal => AbortSignal.timeout(30_000);
  const ask = (
    { tokens = PROMPT, output = POSITIONS - PROMPT, stream = true }: { tokens?: number; output?: number; stream?: boolean } = {},
  ): Call => {
    // Any ids of the vocabulary that are no control tokens.
    const prompt = Array.from({ length: tokens }, (_, i) => 300 + i * 7 % 1000);
    const call = new Call(apiOf(gateway), { model: MODEL, prompt, output, client: 'test', stream }, limit());
    calls.push(call);
    return call;
  };
  const held = (): Promise<Held[]> => Promise.all(workers.map((worker) => worker.held(limit())));
  const tail = async (): Promise<{ prefilled: bigint; decoded: bigint }> => {
    const { tokensPrefilled, tokensDecoded } = await (workers[1] as WorkerStatus).report(limit());
    return { prefilled: tokensPrefilled, decoded: tokensDecoded };
  };
  const waiting = async (): Promise<number | undefined> => (await healthOf(gateway))?.waiting;
  const frees = async (before: readonly Held[]): Promise<void> => {
    await until('both stages are as before', async () => {
      const now = await held();
      return now.every(({ cells, sequences }, i) => cells === before[i]?.cells && sequences === before[i]?.sequences) || undefined;
    });
  };

  it('forgets a client that leaves while it waits for room, and takes nothing of the sessions that have it', async () => {
    const others = [ask(), ask()];
    await Promise.all(others.map((other) => other.reaches(SOME, limit())));
    const before = await held();
    assert.deepEqual(before.map(({ sequences }) => sequences), [PLACES, PLACES]);
    const call = ask();
    await until('it waits', async () => await waiting() === 1 || undefined);
    call.leave();
    await until('nobody waits', async () => await waiting() === 0 || undefined);
    await frees(before);
    await Promise.all(others.map((other) => other.reaches(other.times.length + SOME, limit())));
    assert.equal((await call.ended).status, 0);
  });

  for (const beside of [0, 1]) {
    it(`frees both stages when a client leaves in mid-prompt${beside === 0 ? '' : ', beside a session that goes on'}`, async () => {
      const others = Array.from({ length: beside }, () => ask());
      await Promise.all(others.map((other) => other.reaches(SOME, limit())));
      const before = await held();
      let inTime = false;
      // On a busy machine the prompt may be over before we hear that it has begun.
      for (let attempt = 0; attempt < ATTEMPTS && !inTime; attempt++) {
        const { prefilled } = await tail();
        const call = ask({ tokens: LONG_PROMPT, output: 16 });
        await call.opened(limit());
        const patience = limit();
        while ((await tail()).prefilled === prefilled) {
          patience.throwIfAborted();
        }
        inTime = call.times.length === 0;
        call.leave();
        await frees(before);
      }
      assert.ok(inTime, `${ATTEMPTS} prompts were over too soon`);
      await Promise.all(others.map((other) => other.reaches(other.times.length + SOME, limit())));
    });
  }

  it('frees both stages when a client leaves in mid-stream', async () => {
    const before = await held();
    const call = ask();
    await call.reaches(SOME, limit());
    assert.deepEqual((await held()).map(({ sequences }) => sequences), [1, 1]);
    call.leave();
    await frees(before);
  });

  it('frees both stages when a client leaves that waits for a whole answer', async () => {
    const before = await held();
    const { decoded } = await tail();
    const call = ask({ stream: false });
    await until('the answer is under way', async () => (await tail()).decoded > decoded + BigInt(SOME) || undefined);
    assert.deepEqual((await held()).map(({ sequences }) => sequences), [1, 1]);
    call.leave();
    await frees(before);
    assert.equal(call.times.length, 0);
  });

  it('answers on after all of this', async () => {
    const call = ask({ output: SOME });
    assert.equal((await call.ended).whole, true);
    assert.equal(call.times.length, SOME);
  });
});
