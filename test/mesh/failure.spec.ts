import assert from 'node:assert/strict';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { generatedModel } from '../native/support/programs.ts';
import { ENDLESS, LONG, post, readAnswer, refusalOf, type EndedAnswer } from './support/answer-stream.ts';
import { apiOf, covered, healthOf, idle, LAYERS, Mesh, MODEL, READY_MS, resolveModel } from './support/mesh.ts';
import { processesOf, until } from './support/processes.ts';

/** From the loss of a stage to the error at the client. */
const TOLD_MS = 15_000;
/** A worker that hangs is noticed by its silence. */
const HANG_TOLD_MS = 40_000;

describe('mesh/failure', function () {
  this.timeout(READY_MS);
  let mesh: Mesh;
  let gateway: NodeProcess;
  let head: NodeProcess;
  let tail: NodeProcess;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('failure');
    gateway = await mesh.gateway(await resolveModel());
    head = await mesh.shard('0-4', gateway);
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const workerPid = async (shard: NodeProcess): Promise<number> => (await healthOf(shard))?.shard?.workerPid ?? 0;
  /** Until another worker than that of `pid` serves. */
  const servesWithout = (pid: number, shard: NodeProcess): Promise<true> => until('a new worker serves', async () => {
    const status = (await healthOf(shard))?.shard;
    return (status?.state === 'serving' && status.workerPid !== 0 && status.workerPid !== pid) || undefined;
  }, 60_000);
  const answer = async (fields = {}): Promise<EndedAnswer> => await readAnswer(await post(apiOf(gateway), fields));

  /** An answer to which `strike` happens once it is well on its way. */
  const struck = async (strike: () => void): Promise<{ ended: EndedAnswer; afterMs: number }> => {
    let at = 0;
    const ended = await readAnswer(await post(apiOf(gateway), LONG), (before) => {
      if (before === 5) {
        at = performance.now();
        strike();
      }
    });
    return { ended, afterMs: performance.now() - at };
  };

  const assertTold = ({ ended, afterMs }: { ended: EndedAnswer; afterMs: number }, codes: readonly string[], limitMs = TOLD_MS): void => {
    assert.equal(ended.errors.length, 1);
    const [error] = ended.errors;
    assert.ok(codes.includes(error?.code ?? ''), JSON.stringify(error));
    assert.equal(error?.type, 'server_error');
    assert.equal(ended.done, false);
    assert.equal(ended.finish, undefined);
    assert.ok(afterMs < limitMs, `told after ${afterMs} ms`);
  };

  it('names the layers that nobody serves, and when to come back', async () => {
    const response = await post(apiOf(gateway));
    const { status, retryAfter, error } = await refusalOf(response);
    assert.equal(status, 503);
    assert.equal(error.code, 'no_route');
    assert.match(error.message, /layers 4-8 of 0-8/);
    assert.ok(Number(retryAfter) > 0);
    assert.deepEqual((await healthOf(gateway))?.models.map(({ coverage }) => coverage), ['incomplete']);
  });

  it('never takes a shard of another model', async () => {
    const path = await generatedModel({ layers: LAYERS, embd: 256, type: 'f16', seed: 2 });
    const stranger = await mesh.node('stranger', [
      '--bootstrap', gateway.listening.addresses[0] ?? '', '--model', path, '--layers', `4-${LAYERS}`, '--worker-threads', '1',
    ]);
    await stranger.waitFor('serving', AbortSignal.timeout(READY_MS));
    const { status, error } = await refusalOf(await post(apiOf(gateway)));
    assert.deepEqual([status, error.code], [503, 'no_route']);
    tail = await mesh.shard(`4-${LAYERS}`, gateway, { name: 'tail' });
    await covered(gateway);
    const { route, done } = await answer();
    assert.equal(done, true);
    assert.deepEqual(route.stages.map(({ peer }) => peer), [head.listening.peer_id, tail.listening.peer_id]);
    await stranger.stop();
  });

  for (const which of ['tail', 'head'] as const) {
    it(`tells one error when the ${which}'s worker is killed in mid-answer, and serves again`, async () => {
      const shard = which === 'tail' ? tail : head;
      const pid = await workerPid(shard);
      const expected = (await answer()).text;
      assertTold(await struck(() => process.kill(pid, 'SIGKILL')), ['worker_lost', 'stream_ended', 'seam_unreachable']);
      await servesWithout(pid, shard);
      const { text, done } = await answer();
      assert.deepEqual([text, done], [expected, true]);
      await idle(head, tail);
    });
  }

  it('goes on with its other answers when the client of one leaves', async () => {
    const leaving = new AbortController();
    const [other, left] = await Promise.allSettled([
      answer({ max_tokens: 200, ...ENDLESS }),
      post(apiOf(gateway), LONG, leaving.signal).then((response) => readAnswer(response, (before) => before === 5 ? leaving.abort() : undefined)),
    ]);
    assert.equal(left.status, 'rejected');
    assert.ok(other.status === 'fulfilled');
    assert.deepEqual([other.value.done, other.value.finish], [true, 'length']);
    await idle(head, tail);
  });

  it('tells one error when a worker hangs in mid-answer', async () => {
    const pid = await workerPid(tail);
    assertTold(await struck(() => process.kill(pid, 'SIGSTOP')), ['worker_lost', 'stream_ended', 'seam_timeout', 'lease_expired'], HANG_TOLD_MS);
    await servesWithout(pid, tail);
    assert.equal((await answer()).done, true);
  });

  it('tells one error when a whole node is killed in mid-answer, and its worker ends with it', async () => {
    assertTold(await struck(() => tail.kill('SIGKILL')), ['worker_lost', 'stream_ended', 'lease_expired', 'peer_unreachable', 'seam_unreachable']);
    await tail.exited;
    await until('the worker ends with its node', () => processesOf(mesh.dataDir('tail')).length === 0 || undefined);
    const { status, error } = await refusalOf(await post(apiOf(gateway)));
    assert.equal(status, 503, error.message);
    await idle(head);
  });

  it('finds a node that was killed under its old name when it is back', async () => {
    const before = tail.listening.peer_id;
    tail = await mesh.shard(`4-${LAYERS}`, gateway, { name: 'tail' });
    assert.equal(tail.listening.peer_id, before);
    await covered(gateway);
    const { done, route } = await answer();
    assert.equal(done, true);
    assert.equal(route.stages[1]?.peer, before);
  });

  it('finds the mesh again when the gateway and first contact of all was away', async () => {
    const { addresses } = gateway.listening;
    await gateway.stop();
    gateway = await mesh.gateway(await resolveModel(), 'gateway', ['--listen', (addresses[0] ?? '').replace(/\/p2p\/.*/, '')]);
    assert.deepEqual(gateway.listening.addresses, addresses);
    await covered(gateway);
    assert.equal((await answer()).done, true);
  });

  it('starts its API while its first contact is down, and finds it later', async () => {
    const port = Number(/\/tcp\/(\d+)/.exec(gateway.listening.addresses[0] ?? '')?.[1]);
    await gateway.stop();
    const alone = await mesh.gateway(await resolveModel(), 'alone', ['--bootstrap', gateway.listening.addresses[0] ?? '']);
    const health = await healthOf(alone);
    assert.equal(health?.status, 'ok');
    const { status, error } = await refusalOf(await post(apiOf(alone)));
    assert.equal(status, 503, error.message);
    gateway = await mesh.gateway(await resolveModel(), 'gateway', ['--listen', `/ip4/127.0.0.1/tcp/${port}`]);
    await covered(alone);
    const response = await post(apiOf(alone), { model: MODEL });
    assert.equal((await readAnswer(response)).done, true);
  });
});
