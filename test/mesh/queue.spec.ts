import assert from 'node:assert/strict';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { LONG, post, readAnswer, refusalOf } from './support/answer-stream.ts';
import { apiOf, covered, healthOf, idle, LAYERS, Mesh, READY_MS, resolveModel } from './support/mesh.ts';
import { until } from './support/processes.ts';

/** Longest that anybody waits at the impatient gateway. */
const IMPATIENT_MS = 1000;

describe('mesh/queue', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  /** Another gateway of the same shards: it hears of no room but by asking. */
  let impatient: NodeProcess;
  /** Holds one session. */
  let head: NodeProcess;
  /** Holds more. */
  let tail: NodeProcess;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('queue');
    const model = await resolveModel();
    gateway = await mesh.gateway(model, 'gateway', ['--config', mesh.apiConfig('gateway', 'maxQueued = 1\nqueueMs = 45000')]);
    const contact = ['--bootstrap', gateway.listening.addresses[0] ?? ''];
    [head, tail, impatient] = await Promise.all([
      mesh.shard('0-4', gateway, { name: 'head', args: ['--worker-sequences', '1'] }),
      mesh.shard(`4-${LAYERS}`, gateway, { name: 'tail' }),
      mesh.gateway(model, 'impatient', [...contact, '--config', mesh.apiConfig('impatient', `queueMs = ${IMPATIENT_MS}`)]),
    ]);
    await Promise.all([covered(gateway), covered(impatient)]);
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const ask = (key: string, fields = {}, signal?: AbortSignal): Promise<Response> => post(apiOf(gateway), fields, signal, key);
  const waiting = (count: number): Promise<true> =>
    until(`${count} wait`, async () => (await healthOf(gateway))?.waiting === count || undefined);

  /** A long answer that is running. `leave` resolves when its client has gone. */
  const running = async (key: string): Promise<{ leave(): Promise<void> }> => {
    const leaving = new AbortController();
    const response = await ask(key, LONG, leaving.signal);
    assert.equal(response.status, 200);
    const ended = assert.rejects(readAnswer(response), { name: 'AbortError' });
    ended.catch(() => undefined);
    const leave = async (): Promise<void> => {
      leaving.abort();
      await ended;
    };
    return { leave };
  };

  it('serves a second client when the first one has left, and refuses a third meanwhile', async () => {
    const first = await running('first');
    const second = ask('second');
    await waiting(1);

    const { status, retryAfter, error } = await refusalOf(await ask('third'));
    assert.deepEqual([status, error.type, error.code], [429, 'rate_limit_error', 'rate_limit_exceeded']);
    assert.ok(Number(retryAfter) >= 1);
    assert.match(error.message, /requiredPositions \d+.*availablePositions \d+.*requiredSequences 1.*availableSequences 0/);

    await first.leave();
    const { done, route } = await readAnswer(await second);
    assert.equal(done, true);
    assert.deepEqual(route.stages.map(({ peer }) => peer), [head.listening.peer_id, tail.listening.peer_id]);
    await waiting(0);
    await idle(head, tail);
  });

  it('forgets a client that leaves while it waits', async () => {
    const left = new AbortController();
    const first = await running('first');
    const second = ask('second', {}, left.signal);
    await waiting(1);
    left.abort();
    await assert.rejects(second, { name: 'AbortError' });
    await waiting(0);
    const third = ask('third');
    await waiting(1);
    await first.leave();
    assert.equal((await readAnswer(await third)).done, true);
    await idle(head, tail);
  });

  it('gives up with 503 when sessions of another gateway hold the only place for too long', async () => {
    const first = await running('first');
    const { status, retryAfter, error } = await refusalOf(await post(apiOf(impatient)));
    assert.deepEqual([status, error.code], [503, 'no_capacity']);
    assert.ok(Number(retryAfter) >= 1);
    assert.match(error.message, /availableSequences 0/);
    await first.leave();
    await idle(head, tail);
    assert.equal((await readAnswer(await post(apiOf(impatient)))).done, true);
    await idle(head, tail);
  });
});
