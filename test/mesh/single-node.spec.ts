import assert from 'node:assert/strict';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { DType, SeamEnd } from './spec-client/messages.ts';
import { LONG, post, readAnswer, refusalOf, type EndedAnswer } from './support/answer-stream.ts';
import { apiOf, covered, healthOf, idle, LAYERS, Mesh, MODEL, READY_MS, resolveModel, type Health } from './support/mesh.ts';
import { lastJson, meshnet, until, type Finished } from './support/processes.ts';
import { entryOpen, newLane, Stranger, type RawSeam } from './support/stranger.ts';

describe('mesh/single-node', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  /** All layers, and its own gateway. */
  let whole: NodeProcess;
  /** The first half, and a gateway. */
  let front: NodeProcess;
  let back: NodeProcess;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('single');
    const serving = ['--model', MODEL, '--worker-threads', '1', '--worker-listen', '127.0.0.1:0', '--worker-cells', '4096'];
    whole = await mesh.node('whole', serving);
    front = await mesh.node('front', [...serving, '--layers', '0-4']);
    await Promise.all([whole, front].map((node) => node.waitFor('serving', AbortSignal.timeout(READY_MS))));
    back = await mesh.shard(`4-${LAYERS}`, front, { name: 'back' });
    await Promise.all([covered(whole), covered(front)]);
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const run = (args: readonly string[], name = 'whole'): Promise<Finished> => meshnet(args, { env: { MESHNET_DATA_DIR: mesh.dataDir(name) } });
  const answerOf = async (node: NodeProcess, fields = {}): Promise<EndedAnswer> => await readAnswer(await post(apiOf(node), fields));

  it('answers by itself, on a route of one stage', async () => {
    const { done, route, text } = await answerOf(whole);
    assert.equal(done, true);
    assert.notEqual(text, '');
    assert.deepEqual(route.stages, [{ peer: whole.listening.peer_id, layers: [0, LAYERS], path: 'local' }]);
    await idle(whole);
  });

  it('answers the same when it has only the first half, with its own shard as the head', async () => {
    const { done, route, text } = await answerOf(front);
    assert.equal(done, true);
    assert.equal(text, (await answerOf(whole)).text);
    assert.deepEqual(route.stages, [
      { peer: front.listening.peer_id, layers: [0, 4], path: 'local' },
      { peer: back.listening.peer_id, layers: [4, LAYERS], path: 'direct-grpc' },
    ]);
    await idle(front, back);
  });

  it('answers the same with its own shard as the tail', async () => {
    const { route, text, done } = await answerOf(back);
    assert.equal(done, true);
    assert.equal(text, (await answerOf(whole)).text);
    assert.deepEqual(route.stages.map(({ peer }) => peer), [front.listening.peer_id, back.listening.peer_id]);
    await idle(front, back);
  });

  it('frees its own shard when the client leaves', async () => {
    const leaving = new AbortController();
    const response = await post(apiOf(front), LONG, leaving.signal);
    await assert.rejects(readAnswer(response, (before) => before === 3 ? leaving.abort() : undefined));
    await idle(front, back);
  });

  it('tells a client of its own that the worker was lost', async () => {
    const pid = (await healthOf(whole))?.shard?.workerPid ?? 0;
    const { errors, done } = await readAnswer(await post(apiOf(whole), LONG), (before) => {
      if (before === 3) {
        process.kill(pid, 'SIGKILL');
      }
    });
    assert.equal(done, false);
    assert.equal(errors.length, 1);
    assert.ok(['worker_lost', 'stream_ended'].includes(errors[0]?.code ?? ''), JSON.stringify(errors));
    await until('it serves again', async () => {
      const status = (await healthOf(whole))?.shard;
      return (status?.state === 'serving' && status.workerPid !== 0 && status.workerPid !== pid) || undefined;
    });
    assert.equal((await answerOf(whole)).done, true);
  });

  it('tells clients that have more to say than a session holds', async () => {
    const { status, error } = await refusalOf(await post(apiOf(whole), { max_tokens: 5000 }));
    assert.deepEqual([status, error.code], [400, 'context_length_exceeded']);
  });

  it('shows its status to people and to programs', async () => {
    const people = await run(['status']);
    assert.equal(people.code, 0, people.stderr);
    assert.match(people.stdout, /layers 0-8 of 8/);
    assert.match(people.stdout, /unverified/);
    const programs = await run(['status', '--json']);
    assert.equal(programs.code, 0, programs.stderr);
    const health = lastJson(programs.stdout) as Health;
    assert.equal(health.node.peerId, whole.listening.peer_id);
    assert.equal(health.shard?.state, 'serving');
    assert.deepEqual(health.models.map(({ id, coverage }) => [id, coverage]), [[MODEL, 'complete']]);
  });

  it('is talked to by chat', async () => {
    const people = await run(['chat', '-p', 'Hello', '--max-tokens', '6', '--temperature', '0']);
    assert.equal(people.code, 0, people.stderr);
    const programs = await run(['chat', MODEL, '-p', 'Hello', '--max-tokens', '6', '--temperature', '0', '--json']);
    assert.equal(programs.code, 0, programs.stderr);
    const answer = lastJson(programs.stdout) as { text: string; completion_tokens: number; model: string; finish: string };
    assert.equal(people.stdout, `${answer.text}\n`);
    assert.match(people.stderr, /layers 0-8/);
    assert.deepEqual([answer.completion_tokens, answer.model, answer.finish], [6, MODEL, 'length']);
  });

  it('tells chat of a model that it does not have', async () => {
    const { code, stdout, stderr } = await run(['chat', 'other', '-p', 'Hello', '--json']);
    assert.equal(code, 1);
    const { error } = lastJson(stdout) as { error: { code: string; details: { code: string } } };
    assert.deepEqual([error.code, error.details.code], ['REQUEST_FAILED', 'model_not_found']);
    assert.match(stderr, /^E_REQUEST_FAILED: /);
  });

  it('keeps its key to itself', () => {
    for (const name of ['whole', 'front', 'back']) {
      assert.equal(statSync(join(mesh.dataDir(name), 'identity.key')).mode & 0o777, 0o600);
    }
  });

  describe('asked by a stranger', () => {
    let stranger: Stranger;
    let digest: Uint8Array;

    before(async () => {
      stranger = await Stranger.of(whole.listening.addresses[0] ?? '');
      ({ digest } = await resolveModel());
    });

    after(() => stranger.stop());

    const turn = { turn: 1, nTokens: 2, maxTokens: 4, sampling: {}, logprobs: -1 };
    const begin = async (seam: RawSeam, over: object, ids: number[]): Promise<void> => {
      await seam.send(seam.frame({ seq: 1n, turn: { ...turn, nTokens: ids.length, ...over } }));
      await seam.send(seam.frame({ seq: 2n, turnTokens: { turn: 1, ids, last: true } }));
    };
    const faults: [string, string, (seam: RawSeam) => Promise<void>][] = [
      ['a grammar that is none', 'GRAMMAR_INVALID', (seam) => begin(seam, { grammar: 'root ::= (' }, [1, 2])],
      ['a token outside the vocabulary', 'TOKEN_INVALID', (seam) => begin(seam, {}, [1, 99_999_999])],
      ['a negative token', 'TOKEN_INVALID', (seam) => begin(seam, {}, [1, -5])],
      ['more tokens than the turn has', 'TURN_INVALID', (seam) => begin(seam, { nTokens: 2 }, [1, 2, 3])],
    ];
    for (const [name, code, fault] of faults) {
      it(`answers ${name} with ${code}, and answers on`, async () => {
        const lane = newLane(0);
        const { admitted, leave, code: refused } = await stranger.admit({
          version: 1, lane, nStages: 1, modelDigest: digest, layerFirst: 0, layerLast: LAYERS, positions: 64, deadlineMs: 5000,
          seams: [{ end: SeamEnd.ENTRY, peerId: stranger.peerId }], prefillDtype: DType.F32, decodeDtype: DType.F32,
        });
        assert.ok(admitted !== undefined, refused);
        const seam = await stranger.entry(lane, admitted);
        await seam.send(seam.frame(entryOpen(digest, 64)));
        await fault(seam);
        assert.equal(await seam.refusal(), code);
        leave();
        await idle(whole);
        assert.equal((await answerOf(whole)).done, true);
      });
    }
  });

  it('leaves a node that runs from the same folder alone', async () => {
    const port = Number(new URL(apiOf(whole)).port);
    const second = await run(['up', '--lab', '--listen', '/ip4/127.0.0.1/tcp/0', '--api-port', String(port), '--json']);
    assert.equal(second.code, 1);
    assert.equal((lastJson(second.stdout) as { error: { code: string } }).error.code, 'ADDRESS_IN_USE');
    const { code, stderr } = await run(['status']);
    assert.equal(code, 0, stderr);
  });

  it('tells running answers that it stops', async () => {
    const response = await post(apiOf(front), LONG);
    const { errors, done } = await readAnswer(response, (before) => {
      if (before === 3) {
        front.kill('SIGTERM');
      }
    });
    assert.equal(done, false);
    assert.deepEqual(errors.map(({ code }) => code), ['draining']);
    await Promise.race([front.exited, once(AbortSignal.timeout(30_000), 'abort').then(() => assert.fail('it does not stop'))]);
    await idle(back);
  });
});
