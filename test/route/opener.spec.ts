import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError, type ErrorCode } from '../../src/errors.ts';
import { SeamEnd } from '../../src/proto/peer_pb.js';
import type { Offer } from '../../src/route/offer.ts';
import { RouteOpener, type OpenRoute } from '../../src/route/opener.ts';
import { StageError } from '../../src/route/stage-error.ts';
import { code, offer, soon, Stages } from './rig.ts';

const THREE = [offer(0, 4), offer(4, 8), offer(8, 12)];

describe('route/opener', () => {
  let stages: Stages;

  beforeEach(() => {
    stages = new Stages();
  });

  async function open(offers: readonly Offer[], options = soon(), answerMs = 5000): Promise<OpenRoute> {
    const opener = new RouteOpener({ admissions: stages, bridge: stages, peerId: 'gateway' }, { answerMs, closeMs: 50 });
    const plan = offers.map((candidate, stage) => ({ stage, candidate }));
    const opening = opener.open(plan, 100, options);
    opening.catch(() => undefined);
    await Promise.race([stages.reached('dial entry'), opening.catch(() => undefined)]);
    await Promise.race([stages.head.opened(), opening.catch(() => undefined)]);
    return opening;
  }

  const blamed = (peerId: string, wanted: ErrorCode) => (err: unknown): boolean =>
    err instanceof StageError && err.offer.peerId === peerId && err.cause.code === wanted;

  it('asks every stage for its seams, by the peer at the other end', async () => {
    await open(THREE);
    assert.deepEqual(stages.admits.map(({ seams }) => seams?.map(({ end, peerId }) => `${SeamEnd[end as SeamEnd]} ${peerId}`)), [
      ['ENTRY gateway', 'TO_NEXT peer-4-8', 'LOOP peer-8-12'],
      ['TO_PREVIOUS peer-0-4', 'TO_NEXT peer-8-12'],
      ['TO_PREVIOUS peer-4-8', 'LOOP peer-0-4'],
    ]);
    assert.deepEqual(stages.admits.map(({ layerFirst, layerLast, nStages }) => [layerFirst, layerLast, nStages]),
      [[0, 4, 3], [4, 8, 3], [8, 12, 3]]);
  });

  it('admits all before it links any, the listener of each seam before its dialler, the entry last', async () => {
    await open(THREE);
    const at = (line: string): number => {
      assert.ok(stages.log.includes(line), `${line} is missing: ${stages.log.join('; ')}`);
      return stages.log.indexOf(line);
    };
    const firstLink = stages.log.findIndex((line) => line.startsWith('link'));
    assert.ok(stages.log.slice(0, firstLink).filter((line) => line.startsWith('admit')).length === 3);
    assert.ok(at('link 1 TO_PREVIOUS listen') < at('link 0 TO_NEXT dial'));
    assert.ok(at('link 2 TO_PREVIOUS listen') < at('link 1 TO_NEXT dial'));
    assert.ok(at('link 0 LOOP listen') < at('link 2 LOOP dial'));
    assert.equal(at('dial entry'), stages.log.length - 1);
    assert.equal(stages.dialled?.peerId, 'peer-0-4');
    assert.equal(stages.dialled?.ticket[0], SeamEnd.ENTRY, 'the ticket that the head issued');
  });

  it('opens a whole model without any link', async () => {
    const route = await open([offer(0, 12)]);
    assert.deepEqual(stages.log, ['reach peer-0-12', 'admit 0', 'dial entry']);
    assert.deepEqual(route.summary, { epoch: 1, stages: [{ peer: 'peer-0-12', layers: [0, 12], path: 'local' }] });
  });

  it('tells how frames reach each stage', async () => {
    const route = await open(THREE);
    assert.deepEqual(route.summary.stages.map(({ path }) => path), ['local', 'direct-grpc', 'direct-grpc']);
  });

  it('takes the fewest positions that a stage grants', async () => {
    stages.positions.set(1, 40);
    assert.equal((await open(THREE)).positions, 40);
  });

  it('releases the others when one refuses, and blames the one', async () => {
    stages.faults.set('admit 1', 'NO_CAPACITY');
    await assert.rejects(open(THREE), blamed('peer-4-8', 'NO_CAPACITY'));
    assert.deepEqual(stages.released(), ['release 0 NO_CAPACITY', 'release 2 NO_CAPACITY']);
    assert.ok(!stages.log.some((line) => line.startsWith('link')));
  });

  it('does not wait for a dead stage when another one has refused', async () => {
    stages.faults.set('admit 0', 'NO_CAPACITY');
    stages.faults.set('admit 2', 'hang');
    const began = performance.now();
    await assert.rejects(open(THREE), blamed('peer-0-4', 'NO_CAPACITY'));
    assert.ok(performance.now() - began < 2000);
  });

  it('blames a stage that does not answer in time', async () => {
    stages.faults.set('admit 2', 'hang');
    await assert.rejects(open(THREE, soon(), 20), blamed('peer-8-12', 'DEADLINE_EXCEEDED'));
    assert.deepEqual(stages.released(), ['release 0 DEADLINE_EXCEEDED', 'release 1 DEADLINE_EXCEEDED']);
  });

  it('blames the listener that cannot be reached, and a dialler that was lost', async () => {
    stages.faults.set('link 1 TO_NEXT dial', 'SEAM_UNREACHABLE');
    await assert.rejects(open(THREE), blamed('peer-8-12', 'SEAM_UNREACHABLE'));
    assert.equal(stages.released().length, 3);

    stages = new Stages();
    stages.faults.set('link 1 TO_NEXT dial', 'WORKER_LOST');
    await assert.rejects(open(THREE), blamed('peer-4-8', 'WORKER_LOST'));

    stages = new Stages();
    stages.faults.set('link 0 LOOP listen', 'ROLE_INVALID');
    await assert.rejects(open(THREE), blamed('peer-0-4', 'ROLE_INVALID'));
  });

  it('blames a stage that gives no ticket', async () => {
    stages.withheld.add('1 TO_PREVIOUS');
    await assert.rejects(open(THREE), blamed('peer-4-8', 'PROTOCOL_VIOLATION'));
    assert.equal(stages.released().length, 3);
  });

  it('blames the head whose entry seam does not open', async () => {
    stages.faults.set('dial entry', 'SEAM_UNREACHABLE');
    await assert.rejects(open(THREE), blamed('peer-0-4', 'SEAM_UNREACHABLE'));
    assert.deepEqual(stages.released(), [0, 1, 2].map((stage) => `release ${stage} SEAM_UNREACHABLE`));
  });

  for (const line of ['reach peer-4-8', 'admit 1', 'link 1 TO_PREVIOUS listen', 'link 2 LOOP dial', 'dial entry']) {
    it(`releases every lease when the client leaves at "${line}"`, async () => {
      stages.faults.set(line, 'hang');
      const gone = new AbortController();
      const opening = open(THREE, { signal: gone.signal });
      opening.catch(() => undefined);
      await stages.reached(line);
      // The stages beside the one that hangs are through by then.
      await new Promise((resolve) => { setImmediate(resolve); });
      gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
      await assert.rejects(opening, (err) => isMeshnetError(err, 'CANCELLED'));
      const admitted = line.startsWith('reach') || line.startsWith('admit') ? [0, 2] : [0, 1, 2];
      assert.deepEqual(stages.released(), admitted.map((stage) => `release ${stage} CANCELLED`));
    });
  }

  it('releases every lease when the head hangs at Open', async () => {
    const opener = new RouteOpener({ admissions: stages, bridge: stages, peerId: 'gateway' }, { answerMs: 30, closeMs: 50 });
    const plan = THREE.map((candidate, stage) => ({ stage, candidate }));
    await assert.rejects(opener.open(plan, 100, soon()), (err) => err instanceof StageError && err.offer === THREE[0]);
    assert.equal(stages.released().length, 3);
  });

  it('tells whoever runs the route why a lease was lost', async () => {
    const route = await open(THREE);
    stages.leases.find(({ remotePeer }) => remotePeer === 'peer-4-8')?.end(new MeshnetError('WORKER_LOST'));
    await new Promise((resolve) => { route.lost.addEventListener('abort', resolve, { once: true }); });
    assert.ok(code('WORKER_LOST')(route.lost.reason));
  });

  it('takes a lease that a stage ends without a word for a broken session', async () => {
    const route = await open(THREE);
    stages.leases[0]?.end();
    await new Promise((resolve) => { route.lost.addEventListener('abort', resolve, { once: true }); });
    assert.ok(code('STREAM_ENDED')(route.lost.reason));
  });

  it('lets every stage rest, and goes on with the fewest positions that one grants', async () => {
    const route = await open(THREE);
    await route.rest();
    assert.deepEqual(stages.log.slice(-3), ['rest 0', 'rest 1', 'rest 2']);
    await route.resume(200, soon());
    assert.equal(route.positions, 200);
    stages.positions.set(2, 250);
    await route.resume(300, soon());
    assert.equal(route.positions, 250);
    assert.equal(route.lost.aborted, false);
  });

  it('takes no more positions than it asked for, whatever the stages say', async () => {
    for (const stage of [0, 1, 2]) {
      stages.positions.set(stage, 1_000_000);
    }
    const route = await open(THREE);
    assert.equal(route.positions, 100);
    await route.resume(200, soon());
    assert.equal(route.positions, 200);
    // A shorter turn takes nothing away.
    await route.resume(50, soon());
    assert.equal(route.positions, 200);
  });

  it('says which refusal keeps a session from going on, and does not wait for the other stages', async () => {
    const route = await open(THREE);
    stages.faults.set('resume 0', 'hang');
    stages.faults.set('resume 1', 'LEASE_EXPIRED');
    await assert.rejects(route.resume(200, soon()), code('LEASE_EXPIRED'));
    await route.close(new MeshnetError('LEASE_EXPIRED'));
    assert.deepEqual(stages.released(), [0, 1, 2].map((stage) => `release ${stage} LEASE_EXPIRED`));
  });

  it('closes the entry seam in order before it releases, once', async () => {
    const route = await open(THREE);
    const closing = route.close();
    assert.notEqual((await stages.head.next())?.close, undefined);
    assert.deepEqual(stages.released(), []);
    await stages.head.close();
    await closing;
    await route.close(new MeshnetError('INTERNAL'));
    assert.deepEqual(stages.released(), [0, 1, 2].map((stage) => `release ${stage} CANCELLED`));
  });

  it('releases every lease beside the cancel, so that a head that hangs holds up nobody', async () => {
    const route = await open(THREE);
    const turn = route.entry.turn({ turn: 1, start: 0, ids: [1], maxTokens: 4, logprobs: -1 }, soon());
    const next = turn.next();
    next.catch(() => undefined);
    await stages.head.turn();
    stages.head.near.write = () => new Promise(() => undefined);
    void route.close(new MeshnetError('CANCELLED'));
    assert.deepEqual(stages.released(), [0, 1, 2].map((stage) => `release ${stage} CANCELLED`));
    await assert.rejects(next, MeshnetError);
  });

  it('releases at once, with the reason, when there is one', async () => {
    const route = await open(THREE);
    await route.close(new MeshnetError('SEAM_TIMEOUT'));
    assert.deepEqual(stages.released(), [0, 1, 2].map((stage) => `release ${stage} SEAM_TIMEOUT`));
    await assert.rejects(stages.head.next(), code('SEAM_TIMEOUT'));
  });
});
