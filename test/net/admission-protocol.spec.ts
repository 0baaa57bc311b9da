import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import { MeshnetError, wireCode, type ErrorCode } from '../../src/errors.ts';
import { LeaseClient } from '../../src/net/admission-client.ts';
import { ADMIT, type AdmissionHandler, type AdmissionStream, type Lease, type LeaseEnd } from '../../src/net/admission-protocol.ts';
import { LeaseServer } from '../../src/net/admission-server.ts';
import type { Host } from '../../src/net/host.ts';
import { AdmitReplySchema, AdmitRequestSchema, PathKind, SeamEnd, type Admit, type Link, type Resume } from '../../src/proto/peer_pb.js';
import { ManualClock } from './manual-clock.ts';
import { rejects, Rig, SOON, targetOf } from './rig.ts';

const session = new Uint8Array(16).fill(9);
const ticket = new Uint8Array(32).fill(4);
const admitOf = (peerId: string) => ({
  version: 1, lane: { session, epoch: 1, stage: 0 }, nStages: 1, modelDigest: new Uint8Array(32), layerLast: 4,
  positions: 64, seams: [{ end: SeamEnd.ENTRY, peerId }],
});
const linkOf = (end: SeamEnd) => ({ end, ticket, peerLane: { session, epoch: 1, stage: 1 }, advertisement: {} });

/** A provider that notes what happens and does what the test wants. */
class Provider implements AdmissionHandler {
  readonly leases: Lease[] = [];
  readonly admits: Admit[] = [];
  readonly ends: [LeaseEnd, ErrorCode | undefined][] = [];
  readonly #ended = Promise.withResolvers<LeaseEnd>();
  onAdmit: () => Promise<void> = async () => undefined;
  onLink: (link: Link) => Promise<void> = async () => undefined;
  onResume: () => Promise<void> = async () => undefined;
  /** Turns and rests in order. */
  readonly turns: (number | 'rest')[] = [];

  get ended$(): Promise<LeaseEnd> {
    return this.#ended.promise;
  }

  async admit(request: Admit, lease: Lease) {
    this.admits.push(request);
    this.leases.push(lease);
    await this.onAdmit();
    return { tickets: [{ end: SeamEnd.ENTRY, ticket }], positions: 32, leaseTtlMs: 3000 };
  }

  async link(request: Link) {
    await this.onLink(request);
    return { path: PathKind.LIBP2P, rttUs: 5 };
  }

  rest(): void {
    this.turns.push('rest');
  }

  async resume({ positions }: Resume) {
    this.turns.push(positions);
    await this.onResume();
    return { positions: positions + 1 };
  }

  ended(_lease: Lease, reason: LeaseEnd, code?: ErrorCode): void {
    this.ends.push([reason, code]);
    this.#ended.resolve(reason);
  }
}

describe('net/admission-protocol', () => {
  const rig = new Rig();
  let stage: Host;
  let seeker: Host;
  let provider: Provider;
  let stageClock: ManualClock;
  let seekerClock: ManualClock;
  let client: LeaseClient;

  beforeEach(async () => {
    [stage, seeker] = [await rig.host(), await rig.host()];
    provider = new Provider();
    stageClock = new ManualClock();
    seekerClock = new ManualClock();
    await new LeaseServer({ host: stage, clock: stageClock }).handle(provider);
    client = new LeaseClient({ host: seeker, clock: seekerClock });
  });
  afterEach(() => rig.stop());

  async function admitted(): Promise<AdmissionStream> {
    const stream = await client.open(targetOf(stage), SOON);
    await stream.admit(admitOf(seeker.peerId), SOON);
    return stream;
  }

  it('admits, links and releases, and says who asked', async () => {
    const stream = await client.open(targetOf(stage), SOON);
    const answer = await stream.admit(admitOf(seeker.peerId), SOON);
    assert.deepEqual([answer.positions, answer.leaseTtlMs, [...answer.tickets[0]?.ticket ?? []]], [32, 3000, [...ticket]]);
    assert.equal(stream.remotePeer, stage.peerId);
    assert.equal(provider.leases[0]?.remotePeer, seeker.peerId);
    assert.equal(provider.admits[0]?.positions, 64);
    const linked = await stream.link(linkOf(SeamEnd.TO_NEXT), SOON);
    assert.deepEqual([linked.end, linked.path, linked.rttUs], [SeamEnd.TO_NEXT, PathKind.LIBP2P, 5]);
    await stream.release('CANCELLED', SOON);
    assert.equal(await stream.ended, undefined);
    assert.equal(await provider.ended$, 'released');
    assert.deepEqual(provider.ends, [['released', 'CANCELLED']]);
    assert.ok(provider.leases[0]?.signal.aborted);
  });

  it('gives the seeker the refusal, and the handler no end of what it refused', async () => {
    provider.onAdmit = async () => {
      throw new MeshnetError('NO_CAPACITY', 'no cells', { details: { available: 3, retryAfterMs: 250 } });
    };
    const stream = await client.open(targetOf(stage), SOON);
    await rejects(stream.admit(admitOf(seeker.peerId), SOON), 'NO_CAPACITY', { available: '3', retryAfterMs: 250 });
    assert.equal((await stream.ended)?.code, 'NO_CAPACITY');
    await rejects(stream.link(linkOf(SeamEnd.LOOP), SOON), 'NO_CAPACITY');
    await stream.release('CANCELLED', SOON);
    assert.deepEqual(provider.ends, []);
  });

  it('keeps the lease by keep-alives and ends it after silence', async () => {
    const stream = await admitted();
    for (let i = 0; i < 6; i++) {
      seekerClock.advance(1000);
      // What is answered after the keep-alive shows that it has arrived.
      await stream.link(linkOf(SeamEnd.LOOP), SOON);
      stageClock.advance(2000);
    }
    assert.deepEqual(provider.ends, []);
    stageClock.advance(3000);
    assert.equal(await provider.ended$, 'expired');
    assert.equal((await stream.ended)?.code, 'LEASE_EXPIRED');
    assert.deepEqual(seekerClock.pending, []);
    assert.deepEqual(stageClock.pending, []);
  });

  it('takes a keep-alive as a word', async () => {
    const heard = Promise.withResolvers<void>();
    stageClock.after = ((after) => (ms: number, task: () => void) => {
      if (stageClock.now() > 0) {
        heard.resolve();
      }
      return after(ms, task);
    })(stageClock.after.bind(stageClock));
    await admitted();
    stageClock.advance(2900);
    seekerClock.advance(1000);
    await heard.promise;
    stageClock.advance(2900);
    assert.deepEqual(provider.ends, []);
  });

  it('ends the lease when the seeker is gone', async () => {
    await admitted();
    await seeker.stop(SOON);
    assert.equal(await provider.ended$, 'stream-ended');
  });

  it('tells the seeker when the stage is gone', async () => {
    const stream = await admitted();
    await stage.stop(SOON);
    assert.equal((await stream.ended)?.code, 'STREAM_ENDED');
    assert.equal(await provider.ended$, 'stopped');
  });

  it('lets the stage end a lane by an error or in order', async () => {
    const stream = await admitted();
    provider.leases[0]?.end(new MeshnetError('WORKER_LOST', 'gone', { details: { stage: 1 } }));
    assert.equal((await stream.ended)?.code, 'WORKER_LOST');
    assert.deepEqual(provider.ends, [['ended-here', undefined]]);
    const other = await admitted();
    provider.leases[1]?.end();
    assert.equal(await other.ended, undefined);
  });

  it('works on Links of several ends at once while it hears keep-alives and Release', async () => {
    const gates = new Map([SeamEnd.TO_NEXT, SeamEnd.TO_PREVIOUS].map((end) => [end, Promise.withResolvers<void>()]));
    provider.onLink = async ({ end }) => gates.get(end)?.promise;
    const stream = await admitted();
    const [next, previous] = [SeamEnd.TO_NEXT, SeamEnd.TO_PREVIOUS].map((end) => stream.link(linkOf(end), SOON));
    gates.get(SeamEnd.TO_PREVIOUS)?.resolve();
    assert.equal((await previous)?.end, SeamEnd.TO_PREVIOUS);
    const never = rejects(next as Promise<unknown>, 'STREAM_ENDED');
    await stream.release('CANCELLED', SOON);
    await never;
    assert.equal(await provider.ended$, 'released');
    gates.get(SeamEnd.TO_NEXT)?.resolve();
  });

  it('ends the lease with the error of a Link that failed', async () => {
    provider.onLink = async () => {
      throw new MeshnetError('SEAM_UNREACHABLE');
    };
    const stream = await admitted();
    await rejects(stream.link(linkOf(SeamEnd.TO_NEXT), SOON), 'SEAM_UNREACHABLE');
    assert.equal((await stream.ended)?.code, 'SEAM_UNREACHABLE');
    assert.deepEqual(provider.ends, [['failed', undefined]]);
  });

  it('hears of rests and turns in their order, and grants what the stage grants', async () => {
    const stream = await admitted();
    await stream.rest(SOON);
    assert.equal((await stream.resume({ positions: 40 }, SOON)).positions, 41);
    await stream.rest(SOON);
    assert.equal((await stream.resume({ positions: 50 }, SOON)).positions, 51);
    assert.deepEqual(provider.turns, ['rest', 40, 'rest', 50]);
    await stream.release('CANCELLED', SOON);
    await stream.rest(SOON);
    await rejects(stream.resume({ positions: 60 }, SOON), 'ALREADY_STOPPED');
    assert.equal(await provider.ended$, 'released');
  });

  it('ends the lease when the stage cannot go on with it, and of two Resumes at once', async () => {
    const stream = await admitted();
    provider.onResume = () => Promise.reject(new MeshnetError('NO_CAPACITY'));
    await rejects(stream.resume({ positions: 40 }, SOON), 'NO_CAPACITY');
    assert.equal((await stream.ended)?.code, 'NO_CAPACITY');
    assert.equal(await provider.ended$, 'failed');

    provider.onResume = () => new Promise(() => undefined);
    const hasty = await seeker.open(targetOf(stage), ADMIT, SOON);
    await hasty.write(AdmitRequestSchema, { kind: { case: 'admit', value: admitOf(seeker.peerId) } }, SOON);
    await hasty.read(AdmitReplySchema, LIMITS.admitMessageBytes, SOON);
    for (const positions of [40, 41]) {
      await hasty.write(AdmitRequestSchema, { kind: { case: 'resume', value: { positions } } }, SOON);
    }
    const { kind } = await hasty.read(AdmitReplySchema, LIMITS.admitMessageBytes, SOON);
    assert.equal(kind.case === 'error' ? kind.value.code : 0, wireCode('LIMIT_EXCEEDED'));
  });

  it('calls the end once when the seeker leaves while admission still works', async () => {
    const gate = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    provider.onAdmit = async () => {
      asked.resolve();
      await gate.promise;
    };
    const stream = await client.open(targetOf(stage), SOON);
    const controller = new AbortController();
    const admit = rejects(stream.admit(admitOf(seeker.peerId), { signal: controller.signal }), 'CANCELLED');
    await asked.promise;
    const over = new Promise((resolve) => provider.leases[0]?.signal.addEventListener('abort', resolve));
    controller.abort();
    await admit;
    await over;
    assert.deepEqual(provider.ends, []);
    gate.resolve();
    assert.equal(await provider.ended$, 'stream-ended');
    assert.equal(provider.ends.length, 1);
  });

  it('stops waiting for a silent stage at the deadline', async () => {
    provider.onAdmit = () => new Promise(() => undefined);
    const stream = await client.open(targetOf(stage), SOON);
    await rejects(stream.admit(admitOf(seeker.peerId), { timeoutMs: 40 }), 'DEADLINE_EXCEEDED', { timeoutMs: 40 });
    assert.equal((await stream.ended)?.code, 'DEADLINE_EXCEEDED');
  });

  const bad: [string, ErrorCode, object][] = [
    ['a session id of another length', 'MALFORMED', { lane: { session: new Uint8Array(3), epoch: 1 } }],
    ['no lane', 'MALFORMED', { lane: undefined }],
    ['a digest of another length', 'MALFORMED', { modelDigest: new Uint8Array(31) }],
    ['an empty range', 'RANGE_INVALID', { layerFirst: 4, layerLast: 4 }],
    ['too many stages', 'LIMIT_EXCEEDED', { nStages: LIMITS.stagesPerRoute + 1 }],
    ['a peer id that is none', 'MALFORMED', { seams: [{ end: SeamEnd.ENTRY, peerId: 'x' }] }],
    ['an unknown end', 'MALFORMED', { seams: [{ end: 77, peerId: 'x' }] }],
    ['one end twice', 'MALFORMED', { seams: [{ end: SeamEnd.ENTRY, peerId: 'x' }, { end: SeamEnd.ENTRY, peerId: 'y' }] }],
    ['too many seams', 'LIMIT_EXCEEDED', { seams: Array.from({ length: 5 }, () => ({ end: SeamEnd.LOOP, peerId: 'x' })) }],
  ];
  for (const [what, code, change] of bad) {
    it(`refuses an Admit with ${what}, before admission sees it`, async () => {
      const stream = await client.open(targetOf(stage), SOON);
      await rejects(stream.admit({ ...admitOf(seeker.peerId), ...change }, SOON), code);
      assert.equal(provider.admits.length, 0);
    });
  }

  it('refuses messages out of place', async () => {
    const early = await seeker.open(targetOf(stage), ADMIT, SOON);
    await early.write(AdmitRequestSchema, { kind: { case: 'keepAlive', value: {} } }, SOON);
    const reply = await early.read(AdmitReplySchema, LIMITS.admitMessageBytes, SOON);
    assert.equal(reply.kind.case, 'error');
    const twice = await admitted();
    await rejects(twice.admit(admitOf(seeker.peerId), SOON), 'MALFORMED');
    assert.equal(await provider.ended$, 'failed');
  });

  it('ends the lease of a seeker that sends garbage, or too much, or too fast', async () => {
    const raw = await seeker.open(targetOf(stage), ADMIT, SOON);
    await raw.writeBytes(Uint8Array.of(0xff, 0xff), SOON);
    await rejects(raw.read(AdmitReplySchema, LIMITS.admitMessageBytes, SOON), 'STREAM_ENDED');
    const large = await seeker.open(targetOf(stage), ADMIT, SOON);
    await large.writeBytes(new Uint8Array(LIMITS.admitMessageBytes + 1), SOON);
    await rejects(large.read(AdmitReplySchema, LIMITS.admitMessageBytes, SOON), 'STREAM_ENDED');
    assert.equal(provider.admits.length, 0);
    const fast = await admitted();
    for (let i = 0; i < 40; i++) {
      seekerClock.advance(1000);
    }
    assert.equal((await fast.ended)?.code, 'RATE_EXCEEDED');
    assert.equal(await provider.ended$, 'failed');
  });

  it('does not believe a stage that answers what nobody asked', async () => {
    const liar = await rig.host();
    await liar.handle(ADMIT, async (stream) => {
      await stream.read(AdmitRequestSchema, LIMITS.admitMessageBytes, SOON);
      await stream.write(AdmitReplySchema, { kind: { case: 'linked', value: { end: SeamEnd.LOOP } } }, SOON);
    });
    const stream = await client.open(targetOf(liar), SOON);
    await rejects(stream.admit(admitOf(seeker.peerId), SOON), 'PROTOCOL_VIOLATION');
    assert.equal((await stream.ended)?.code, 'PROTOCOL_VIOLATION');
  });
});
