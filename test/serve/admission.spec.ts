import assert from 'node:assert/strict';
import { once } from 'node:events';
import { create } from '@bufbuild/protobuf';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { ResumeSchema, SeamEnd, type Admit } from '../../src/proto/peer_pb.js';
import { DType } from '../../src/proto/seam_pb.js';
import type { Admission } from '../../src/serve/admission.ts';
import { FakeWorkshop } from '../support/fake-model.ts';
import { GATEWAY, MODEL, NEXT, ServeRig, TestLease, admitOf, linkOf, soon } from './rig.ts';

describe('serve/admission', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  let rig: ServeRig;
  let admission: Admission;
  const leases: TestLease[] = [];
  const isCode = (code: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === code;

  before(async () => {
    rig = new ServeRig(workshop);
    rig.shard(0, 6, { sequences: 2 });
    rig.shard(6, 12, { loadingAnswers: 1_000 });
    rig.shard(3, 6, { architecture: 'gemma2' });
    await rig.bridge.start();
    const [head, , dark] = rig.shards;
    rig.shards.forEach((shard) => shard.start());
    await head?.serving(soon());
    await assert.rejects(dark?.serving(soon()) ?? assert.fail(), isCode('NOT_CERTIFIED'));
    admission = rig.admission({ sessionsPerPeer: 3, lingerMs: 50 });
  });
  after(async () => {
    await rig.stop();
    workshop.remove();
  });
  afterEach(async () => {
    leases.splice(0).forEach((lease) => lease.close('released'));
    await admission.stop();
    assert.equal(admission.size, 0);
    assert.equal(rig.lanes.size, 0);
  });

  async function admit(request: Admit, peer = GATEWAY): Promise<{ lease: TestLease; reply: Awaited<ReturnType<Admission['admit']>> }> {
    const lease = new TestLease(peer);
    const reply = await admission.admit(request, lease);
    lease.admission = admission;
    leases.push(lease);
    return { lease, reply };
  }

  /** How many sequence ids the worker has free, by its own word. */
  async function free(): Promise<number> {
    const description = await rig.shards[0]?.worker.client.describe(soon());
    return description?.budget?.sequencesFree ?? assert.fail();
  }

  it('answers with one ticket a seam, the certificate, the positions and the terms', async () => {
    const { reply } = await admit(admitOf(1));
    assert.deepEqual(reply.tickets?.map(({ end }) => end), [SeamEnd.ENTRY, SeamEnd.TO_NEXT]);
    assert.ok(reply.tickets?.every(({ ticket }) => ticket?.byteLength === 32));
    assert.notDeepEqual(reply.tickets?.[0]?.ticket, reply.tickets?.[1]?.ticket);
    assert.equal(Buffer.from(reply.seamCertificate ?? []).toString('hex'), 'c0ffee');
    assert.equal(reply.positions, 100);
    assert.equal(reply.leaseTtlMs, 30_000);
    assert.equal(reply.maxChunkTokens, 64);
    assert.equal(admission.size, 1);
    assert.equal(await free(), 7);
  });

  it('grants no more positions than one session can have here', async () => {
    assert.equal((await admit(admitOf(1, { positions: 100_000 }))).reply.positions, 1024);
  });

  for (const [what, change, code] of [
    ['another version', { version: 2 }, 'VERSION_UNSUPPORTED'],
    ['no lane', { lane: undefined }, 'MALFORMED'],
    ['a stage that the route does not have', { nStages: 0 }, 'LIMIT_EXCEEDED'],
    ['more stages than a route may have', { nStages: 17 }, 'LIMIT_EXCEEDED'],
    ['another model', { modelDigest: new Uint8Array(32) }, 'MODEL_UNKNOWN'],
    ['half a digest', { modelDigest: new Uint8Array(16).fill(6) }, 'MODEL_UNKNOWN'],
    ['layers that are not served', { layerFirst: 0, layerLast: 5 }, 'RANGE_INVALID'],
    ['a tail in the middle', { nStages: 1, seams: [{ end: SeamEnd.ENTRY, peerId: GATEWAY }] }, 'RANGE_MISMATCH'],
    ['a seam too few', { seams: [{ end: SeamEnd.ENTRY, peerId: GATEWAY }] }, 'MALFORMED'],
    ['a seam that a head of two does not have', {
      seams: [{ end: SeamEnd.ENTRY, peerId: GATEWAY }, { end: SeamEnd.LOOP, peerId: NEXT }],
    }, 'MALFORMED'],
    ['a seam twice', {
      seams: [{ end: SeamEnd.ENTRY, peerId: GATEWAY }, { end: SeamEnd.ENTRY, peerId: GATEWAY }],
    }, 'MALFORMED'],
    ['an entry for somebody else', {
      seams: [{ end: SeamEnd.ENTRY, peerId: NEXT }, { end: SeamEnd.TO_NEXT, peerId: NEXT }],
    }, 'PEER_MISMATCH'],
    ['no positions', { positions: 0 }, 'LIMIT_EXCEEDED'],
    ['positions beyond any context', { positions: 1_048_577 }, 'LIMIT_EXCEEDED'],
    ['f16 in prefill', { prefillDtype: DType.DTYPE_F16 }, 'NOT_CERTIFIED'],
    ['q8_0 in decode', { decodeDtype: DType.DTYPE_Q8_0 }, 'NOT_CERTIFIED'],
    ['a dtype that does not exist', { decodeDtype: 9 as DType }, 'NOT_CERTIFIED'],
  ] as [string, Parameters<typeof admitOf>[1], ErrorCode][]) {
    it(`refuses ${what}`, async () => {
      await assert.rejects(admit(admitOf(1, change)), isCode(code));
      assert.equal(await free(), 8);
    });
  }

  it('refuses a shard that still loads with a hint when to ask again, and a dark one without', async () => {
    const tail = { layerFirst: 6, layerLast: 12, lane: { session: new Uint8Array(16), epoch: 1, stage: 1 } };
    const seams = [{ end: SeamEnd.TO_PREVIOUS, peerId: NEXT }];
    await assert.rejects(admit(admitOf(1, { ...tail, seams })), (err: unknown) => {
      assert.ok(isMeshnetError(err, 'NOT_SERVING'));
      assert.equal(err.details['state'], 'loading');
      assert.ok(Number(err.details['retryAfterMs']) > 0);
      return true;
    });
    const middle = {
      layerFirst: 3, layerLast: 6, nStages: 3, lane: { session: new Uint8Array(16), epoch: 1, stage: 1 },
      seams: [...seams, { end: SeamEnd.TO_NEXT, peerId: NEXT }],
    };
    await assert.rejects(admit(admitOf(1, middle)), isCode('NOT_CERTIFIED'));
  });

  it('lets an uncertified boundary through for benchmarks only', async () => {
    const bench = rig.admission({ anyDtype: true });
    const lease = new TestLease();
    await bench.admit(admitOf(1, { decodeDtype: DType.DTYPE_F16 }), lease);
    bench.ended(lease, 'released');
    await bench.stop();
  });

  it('passes on the worker\'s no, and frees nothing of others', async () => {
    await admit(admitOf(1));
    await admit(admitOf(2));
    await assert.rejects(admit(admitOf(3), NEXT), isCode('PEER_MISMATCH'));
    await assert.rejects(admit(admitOf(3)), (err: unknown) => isMeshnetError(err, 'NO_CAPACITY') && err.details['retryAfterMs'] === 1000);
    assert.equal(await free(), 6);
  });

  it('names what a session required and what the worker has, when there is no room', async () => {
    await admit(admitOf(1));
    await admit(admitOf(2));
    await assert.rejects(admit(admitOf(3)), (err: unknown) => {
      assert.ok(isMeshnetError(err, 'NO_CAPACITY'));
      const { requiredPositions, availablePositions, requiredSequences, availableSequences } = err.details;
      // The worker of the test holds two sessions and counts to eight.
      assert.deepEqual([requiredPositions, availablePositions, requiredSequences, availableSequences], [100, 1024, 1, 6]);
      return true;
    });
  });

  it('tells an observer of every session that it refuses, its own limit included, and of no other', async () => {
    const refused: ErrorCode[] = [];
    const watched = rig.admission({ sessionsPerPeer: 1 }, {}, { sessionRefused: (reason) => { refused.push(reason); } });
    const lease = new TestLease();
    await watched.admit(admitOf(1), lease);
    await assert.rejects(watched.admit(admitOf(2), new TestLease()), isCode('RATE_EXCEEDED'));
    await assert.rejects(watched.admit(admitOf(2, { version: 2 }), new TestLease(NEXT)), isCode('VERSION_UNSUPPORTED'));
    watched.ended(lease, 'released');
    await watched.stop();
    assert.deepEqual(refused, ['RATE_EXCEEDED', 'VERSION_UNSUPPORTED']);
  });

  it('refuses a lane twice, and keeps the first', async () => {
    await admit(admitOf(1));
    await assert.rejects(admit(admitOf(1)), isCode('LANE_EXISTS'));
    assert.equal(await free(), 7);
    const both = await Promise.allSettled([admit(admitOf(2)), admit(admitOf(2))]);
    assert.deepEqual(both.map(({ status }) => status).sort(), ['fulfilled', 'rejected']);
    assert.equal(await free(), 6);
  });

  it('limits the sessions of one peer, those that are refused not counted', async () => {
    const strict = rig.admission({ sessionsPerPeer: 1 });
    const lease = new TestLease();
    await assert.rejects(strict.admit(admitOf(9, { positions: 0 }), new TestLease()), isCode('LIMIT_EXCEEDED'));
    await strict.admit(admitOf(1), lease);
    await assert.rejects(strict.admit(admitOf(2), new TestLease()), (err: unknown) => {
      assert.ok(isMeshnetError(err, 'RATE_EXCEEDED'));
      assert.deepEqual([err.details['sessions'], err.details['limit']], [1, 1]);
      return true;
    });
    strict.ended(lease, 'released');
    const again = new TestLease();
    await strict.admit(admitOf(2), again);
    strict.ended(again, 'released');
    await strict.stop();
  });

  it('ends the session that has rested longest when another needs its room, and no more than that', async () => {
    const first = await admit(admitOf(1));
    const second = await admit(admitOf(2));
    admission.rest(second.lease);
    admission.rest(first.lease);
    const third = await admit(admitOf(3));
    assert.equal((await second.lease.ended.promise)?.code, 'LEASE_EXPIRED');
    assert.equal(first.lease.signal.aborted, false);
    await admit(admitOf(4));
    assert.equal((await first.lease.ended.promise)?.code, 'LEASE_EXPIRED');
    assert.equal(third.lease.signal.aborted, false);
    assert.equal(await free(), 6);
  });

  it('ends no session whose turn is to come', async () => {
    const { lease } = await admit(admitOf(1));
    await admit(admitOf(2));
    admission.rest(lease);
    const shard = rig.shards[0] ?? assert.fail();
    assert.deepEqual(admission.atRest(shard), { sessions: 1, positions: 100 });
    assert.equal((await admission.resume(create(ResumeSchema, { positions: 50 }), lease)).positions, 100);
    assert.deepEqual(admission.atRest(shard), { sessions: 0, positions: 0 });
    await assert.rejects(admit(admitOf(3)), isCode('NO_CAPACITY'));
    assert.equal(lease.signal.aborted, false);
  });

  it('grants a longer turn as much as one session may have, and passes on that there is not so much', async () => {
    const { lease } = await admit(admitOf(1));
    assert.equal((await admission.resume(create(ResumeSchema, { positions: 300 }), lease)).positions, 300);
    assert.equal((await admission.resume(create(ResumeSchema, { positions: 100_000 }), lease)).positions, 1024);
    assert.equal((await admission.resume(create(ResumeSchema, { positions: 1 }), lease)).positions, 1024);
    await assert.rejects(admission.resume(create(ResumeSchema, { positions: 0 }), lease), isCode('LIMIT_EXCEEDED'));
    await assert.rejects(admission.resume(create(ResumeSchema, { positions: 9 }), new TestLease()), isCode('LANE_NOT_OPEN'));
  });

  it('counts a session at rest against its peer no more than it has to', async () => {
    const strict = rig.admission({ sessionsPerPeer: 1 });
    const lease = new TestLease();
    await strict.admit(admitOf(1), lease);
    lease.admission = strict;
    strict.rest(lease);
    const next = new TestLease();
    await strict.admit(admitOf(2), next);
    assert.equal((await lease.ended.promise)?.code, 'LEASE_EXPIRED');
    strict.ended(next, 'released');
    await strict.stop();
  });

  for (const reason of ['released', 'stream-ended', 'expired', 'failed', 'stopped'] as const) {
    it(`frees the lane when its lease has ${reason}`, async () => {
      const { lease } = await admit(admitOf(1));
      lease.close(reason);
      lease.close(reason);
      await admission.stop();
      assert.equal(await free(), 8);
      assert.equal(admission.size, 0);
    });
  }

  it('ends the lease with the error with which the lane ended', async () => {
    const { lease } = await admit(admitOf(1));
    const lane = { session: new Uint8Array(16).fill(1), epoch: 66, stage: 0 };
    await rig.shards[0]?.worker.client.release({ lane, reason: 35 }, soon());
    assert.equal((await lease.ended.promise)?.code, 'SEAM_TIMEOUT');
    assert.equal(admission.size, 0);
  });

  it('ends the lease in order when the lane did', async () => {
    const { lease } = await admit(admitOf(2));
    const lane = { session: new Uint8Array(16).fill(2), epoch: 66, stage: 0 };
    await rig.shards[0]?.worker.client.release({ lane, reason: 0 }, soon());
    assert.equal(await lease.ended.promise, undefined);
  });

  it('takes no Link before admission', async () => {
    const record = await rig.peers.advertise();
    await assert.rejects(admission.link(linkOf(1, record), new TestLease()), isCode('LANE_NOT_OPEN'));
  });

  it('ends every lease with WORKER_LOST when the worker dies, and admits again with the next boot', async () => {
    const first = await admit(admitOf(1));
    const second = await admit(admitOf(2));
    const lost = once(rig.shards[0]?.worker ?? assert.fail(), 'lost', soon());
    process.kill(rig.shards[0]?.description?.pid ?? assert.fail(), 'SIGKILL');
    await lost;
    for (const { lease } of [first, second]) {
      assert.equal((await lease.ended.promise)?.code, 'WORKER_LOST');
    }
    await assert.rejects(admit(admitOf(3)), isCode('NOT_SERVING'));
    await rig.shards[0]?.serving(soon());
    await admit(admitOf(1));
  });

  it('refuses new sessions while it drains, and keeps those that it has', async () => {
    const { lease } = await admit(admitOf(1));
    await rig.shards[0]?.drain(soon());
    await assert.rejects(admit(admitOf(2)), isCode('DRAINING'));
    assert.equal(lease.signal.aborted, false);
    assert.equal(Buffer.compare(rig.shards[0]?.modelDigest ?? assert.fail(), MODEL), 0);
  });
});
