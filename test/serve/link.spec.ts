import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError, type ErrorCode } from '../../src/errors.ts';
import { PathKind, SeamEnd } from '../../src/proto/peer_pb.js';
import type { Admission } from '../../src/serve/admission.ts';
import type { LinkerInit } from '../../src/serve/linker.ts';
import type { PacketDialer } from '../../src/worker/packet-duplex.ts';
import { FakeWorkshop } from '../support/fake-model.ts';
import { CERTIFICATE, GATEWAY, NEXT, NOW_MS, SELF, ServeRig, TestLease, admitOf, linkOf, sha256, soon } from './rig.ts';

describe('serve/link', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  let rig: ServeRig;
  let dials: number;
  let remote: PacketDialer['dial'];
  const running: { admission: Admission; lease: TestLease }[] = [];
  const isCode = (code: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === code;

  before(async () => {
    const counted: PacketDialer = {
      dial: (...args) => {
        dials++;
        return remote(...args);
      },
    };
    rig = new ServeRig(workshop, counted);
    rig.shard(0, 6);
    rig.shard(6, 12);
    rig.shard(0, 6, {}, { listen: undefined });
    await rig.start();
  });
  after(async () => {
    await rig.stop();
    workshop.remove();
  });
  beforeEach(() => {
    dials = 0;
    remote = () => Promise.reject(new MeshnetError('SEAM_UNREACHABLE'));
  });
  afterEach(async () => {
    for (const { admission, lease } of running.splice(0)) {
      lease.close('released');
      await admission.stop();
    }
    assert.equal(rig.lanes.size, 0);
  });

  /** An admitted head; `link` links it. */
  async function head(
    request = admitOf(1), linker: LinkerInit = {},
  ): Promise<{ lease: TestLease; link: (of: ReturnType<typeof linkOf>) => ReturnType<Admission['link']>; admission: Admission; tickets: Map<number, Uint8Array> }> {
    const admission = rig.admission({ lingerMs: 100 }, linker);
    const lease = new TestLease();
    const { tickets = [] } = await admission.admit(request, lease);
    lease.admission = admission;
    running.push({ admission, lease });
    return {
      lease, admission, link: (of) => admission.link(of, lease),
      tickets: new Map(tickets.map(({ end, ticket }) => [Number(end), ticket as Uint8Array])),
    };
  }

  it('dials directly where the signed advertisement says, and tells path and round trip', async () => {
    const { link } = await head();
    const linked = await link(linkOf(1, await rig.peers.advertise()));
    assert.deepEqual(linked, { end: SeamEnd.TO_NEXT, path: PathKind.DIRECT_GRPC, rttUs: 77 });
    assert.equal(dials, 0);
  });

  it('only expects the other end when it does not dial', async () => {
    const { link } = await head();
    const linked = await link(linkOf(1, await rig.peers.advertise(), { dial: false }));
    assert.deepEqual(linked, { end: SeamEnd.TO_NEXT, path: PathKind.UNSPECIFIED });
  });

  for (const [what, change, link, code] of [
    ['no advertisement', {}, { advertisement: undefined }, 'MALFORMED'],
    ['an end that the lane does not have', {}, { end: SeamEnd.LOOP }, 'ROLE_INVALID'],
    ['the entry, which the gateway dials', {}, { end: SeamEnd.ENTRY }, 'ROLE_INVALID'],
    ['the advertisement of another peer', { peerId: '12D3KooWElse' }, {}, 'PEER_MISMATCH'],
    ['an advertisement of another model', { modelDigest: new Uint8Array(32) }, {}, 'MODEL_MISMATCH'],
    ['a shard that does not meet this one', { layerFirst: 7 }, {}, 'RANGE_MISMATCH'],
    ['a shard of a model with more layers', { nLayer: 13 }, {}, 'RANGE_MISMATCH'],
    ['another certificate than the advertised one', {}, { seamCertificate: Buffer.from('00', 'hex') }, 'DIGEST_MISMATCH'],
    ['no certificate where one is advertised', {}, { seamCertificate: new Uint8Array() }, 'DIGEST_MISMATCH'],
    ['a certificate where none is advertised', {
      seamCertificateSha256: new Uint8Array(), seamEndpoints: [],
    }, {}, 'DIGEST_MISMATCH'],
    ['the lane of another session', {}, {
      peerLane: { session: new Uint8Array(16).fill(9), epoch: 1, stage: 1 },
    }, 'MALFORMED'],
    ['the lane of another epoch', {}, { peerLane: { session: new Uint8Array(16).fill(1), epoch: 2, stage: 1 } }, 'MALFORMED'],
    ['the lane of another stage', {}, { peerLane: { session: new Uint8Array(16).fill(1), epoch: 1, stage: 0 } }, 'MALFORMED'],
    ['no lane to dial', {}, { peerLane: undefined }, 'MALFORMED'],
  ] as [string, object, object, ErrorCode][]) {
    it(`refuses ${what}`, async () => {
      const stage = await head();
      const request = linkOf(1, await rig.peers.advertise(change), link);
      await assert.rejects(stage.link(request), isCode(code));
      assert.equal(dials, 0);
    });
  }

  it('refuses an advertisement that the peer has not signed, that was changed, or that has expired', async () => {
    const { link } = await head();
    const forged = await rig.peers.advertise({}, '12D3KooWForger');
    await assert.rejects(link(linkOf(1, forged)), isCode('ADVERTISEMENT_INVALID'));
    const changed = await rig.peers.advertise();
    const bytes = changed.signed.advertisement.slice();
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 3;
    await assert.rejects(link(linkOf(1, { ...changed, signed: { ...changed.signed, advertisement: bytes } })),
      isCode('ADVERTISEMENT_INVALID'));
    const late = await head(admitOf(2), { now: () => NOW_MS + 61_000 });
    await assert.rejects(late.link(linkOf(2, await rig.peers.advertise())), isCode('ADVERTISEMENT_INVALID'));
  });

  it('takes the bridge when no direct path works, and remembers the pair', async () => {
    const { link } = await head();
    const closed = await rig.peers.advertise({ seamEndpoints: ['closed.example:1'] });
    await assert.rejects(link(linkOf(1, closed)), isCode('SEAM_UNREACHABLE'));
    assert.equal(dials, 1);
  });

  it('says what the other node refused the bridge with', async () => {
    remote = () => Promise.reject(new MeshnetError('LANE_NOT_OPEN'));
    const { link } = await head(admitOf(1), { noDirect: true });
    await assert.rejects(link(linkOf(1, await rig.peers.advertise())), isCode('LANE_NOT_OPEN'));
    assert.equal(dials, 1);
  });

  describe('between two stages of one node', () => {
    /** Both ends admitted, the tail linked; `link` makes the head dial. */
    async function pair(
      session: number, linker: LinkerInit, seamEndpoints = ['open.example:1'],
    ): Promise<{ link: () => ReturnType<Admission['link']>; leases: TestLease[] }> {
      const seams = [{ end: SeamEnd.ENTRY, peerId: GATEWAY }, { end: SeamEnd.TO_NEXT, peerId: SELF }];
      const first = await head(admitOf(session, { seams }), linker);
      const lane = { session: new Uint8Array(16).fill(session), epoch: 1, stage: 1 };
      const last = await head(admitOf(session, {
        lane, layerFirst: 6, layerLast: 12, seams: [{ end: SeamEnd.TO_PREVIOUS, peerId: SELF }],
      }), linker);
      const headSays = await rig.peers.advertise({ peerId: SELF, layerFirst: 0, layerLast: 6, seamEndpoints });
      const tailSays = await rig.peers.advertise({ peerId: SELF, seamEndpoints });
      await last.link(linkOf(session, headSays, {
        end: SeamEnd.TO_PREVIOUS, dial: false, peerLane: { ...lane, stage: 0 },
      }));
      const ticket = last.tickets.get(SeamEnd.TO_PREVIOUS) as Uint8Array<ArrayBuffer>;
      return { link: () => first.link(linkOf(session, tailSays, { ticket })), leases: [first.lease, last.lease] };
    }

    it('opens the bridge through memory, and it ends with the lanes', async () => {
      const { link, leases } = await pair(1, { noDirect: true });
      assert.deepEqual(await link(), { end: SeamEnd.TO_NEXT, path: PathKind.LOCAL, rttUs: 1234 });
      assert.equal(rig.incoming.size, 1);
      leases.forEach((lease) => lease.close('released'));
      while (rig.incoming.size > 0) {
        await rig.shards[0]?.worker.client.describe(soon());
      }
      assert.equal(dials, 0);
    });

    it('takes the bridge after a direct try that failed', async () => {
      const { link } = await pair(2, {}, ['closed.example:1']);
      assert.equal((await link()).path, PathKind.LOCAL);
    });

    it('does not try a pair directly that has just failed, and does so again later', async () => {
      const asked: string[] = [];
      const worker = rig.shards[0]?.worker.client ?? assert.fail();
      const real = worker.link.bind(worker);
      worker.link = (request, options) => {
        asked.push('direct' in request && request.direct !== undefined ? 'direct' : 'bridge');
        return real(request, options);
      };
      try {
        const admission = rig.admission({}, { directRetryMs: 200 });
        const closed = await rig.peers.advertise({ seamEndpoints: ['closed.example:1'] });
        const lease = new TestLease();
        await admission.admit(admitOf(3), lease);
        lease.admission = admission;
        running.push({ admission, lease });
        const failing = (): Promise<void> => assert.rejects(admission.link(linkOf(3, closed), lease), isCode('SEAM_UNREACHABLE'));
        await failing();
        await failing();
        assert.deepEqual(asked, ['direct', 'bridge', 'bridge']);
        const deadline = performance.now() + 5_000;
        while (!asked.slice(3).includes('direct') && performance.now() < deadline) {
          await failing();
        }
        assert.ok(asked.slice(3).includes('direct'));
      } finally {
        worker.link = real;
      }
    });
  });

  it('uses the bridge for a worker or a peer without direct connections', async () => {
    remote = () => Promise.reject(new MeshnetError('DRAINING'));
    const { link } = await head();
    const without = await rig.peers.advertise({ seamCertificateSha256: new Uint8Array(), seamEndpoints: [] });
    await assert.rejects(link(linkOf(1, without, { seamCertificate: new Uint8Array() })), isCode('DRAINING'));
    const unlisted = await rig.peers.advertise({ seamEndpoints: [], seamCertificateSha256: sha256(CERTIFICATE) });
    await assert.rejects(link(linkOf(1, unlisted)), isCode('DRAINING'));
    assert.equal(dials, 2);
  });

  describe('an incoming bridge', () => {
    const open = (change: object = {}) => ({
      $typeName: 'meshnet.peer.v1.BridgeOpen' as const, version: 1, lane: admitOf(1).lane, end: SeamEnd.ENTRY, ...change,
    });

    it('is let in for the peer, end and ticket of its lane only', async () => {
      const { tickets } = await head();
      const ticket = tickets.get(SeamEnd.ENTRY) as Uint8Array<ArrayBuffer>;
      assert.equal(typeof rig.incoming.accept({ ...open(), ticket }, GATEWAY), 'function');
      for (const [change, peer, code] of [
        [{ version: 2 }, GATEWAY, 'VERSION_UNSUPPORTED'],
        [{ lane: undefined }, GATEWAY, 'LANE_NOT_OPEN'],
        [{ lane: admitOf(2).lane }, GATEWAY, 'LANE_NOT_OPEN'],
        [{ end: SeamEnd.LOOP }, GATEWAY, 'ROLE_INVALID'],
        [{}, NEXT, 'PEER_MISMATCH'],
        [{ end: SeamEnd.TO_NEXT }, NEXT, 'TICKET_INVALID'],
        [{ ticket: new Uint8Array(32) }, GATEWAY, 'TICKET_INVALID'],
        [{ ticket: new Uint8Array(31) }, GATEWAY, 'TICKET_INVALID'],
      ] as [object, string, ErrorCode][]) {
        assert.throws(() => rig.incoming.accept({ ...open(), ticket, ...change }, peer), isCode(code), code);
      }
    });

    it('finds no lane any more after the lease', async () => {
      const { tickets, lease } = await head();
      const ticket = tickets.get(SeamEnd.ENTRY) as Uint8Array<ArrayBuffer>;
      lease.close('expired');
      assert.throws(() => rig.incoming.accept({ ...open(), ticket }, GATEWAY), isCode('LANE_NOT_OPEN'));
    });
  });
});
