import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { parseAdvertisement } from '../../src/domain/advertisement.ts';
import type { AtRest } from '../../src/domain/capability.ts';
import { MeshnetError } from '../../src/errors.ts';
import { Health } from '../../src/proto/peer_pb.js';
import { Advertiser, type AdvertiserInit } from '../../src/serve/advertiser.ts';
import { FakeWorkshop } from '../support/fake-model.ts';
import { CERTIFICATE, MODEL, NOW_MS, Peers, SELF, ServeRig, sha256, soon } from './rig.ts';

describe('serve/advertiser', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  const peers = new Peers();
  let rig: ServeRig;
  let advertiser: Advertiser | undefined;
  let announced: EventEmitter<{ provide: []; withdraw: [] }>;
  let taken: (number | Error)[];
  let resting: AtRest;

  before(async () => {
    rig = new ServeRig(workshop);
    rig.shard(0, 6);
    rig.shard(6, 12, {}, { listen: undefined });
    await rig.start();
  });
  after(async () => {
    await rig.stop();
    workshop.remove();
  });
  beforeEach(() => {
    announced = new EventEmitter();
    taken = [];
    resting = { sessions: 0, positions: 0 };
  });
  afterEach(() => advertiser?.stop());

  function make(init: Partial<AdvertiserInit> = {}): Advertiser {
    advertiser = new Advertiser({
      shards: rig.shards,
      announcer: {
        provide: async (digest) => {
          assert.deepEqual(digest, MODEL);
          announced.emit('provide');
          const answer = taken.shift() ?? 1;
          if (answer instanceof Error) {
            throw answer;
          }
          return answer;
        },
        withdraw: async () => {
          announced.emit('withdraw');
        },
      },
      sign: peers.signAs(SELF),
      atRest: (shard) => shard === rig.shards[0] ? resting : { sessions: 0, positions: 0 },
    }, {
      peerId: SELF, addresses: () => Array.from({ length: 6 }, (_, i) => `/ip4/127.0.0.1/tcp/${i + 1}`),
      endpoints: (port) => [`127.0.0.1:${port}`], now: () => NOW_MS, announceRetryMs: 5, ...init,
    });
    return advertiser;
  }

  it('says of each shard that serves what its worker measured, signed, within the limits', async () => {
    const made = make();
    made.start();
    await once(rig.shards[0]?.worker ?? assert.fail(), 'report', soon());
    const [head, tail, ...more] = await made.localAdvertisements();
    assert.deepEqual(more, []);
    const { advertisement } = await parseAdvertisement(head?.signed ?? assert.fail(), {
      verify: peers.verify, nowMs: NOW_MS, peerId: SELF,
    });
    const description = rig.shards[0]?.description ?? assert.fail();
    assert.deepEqual([advertisement.layerFirst, advertisement.layerLast, advertisement.nLayer], [0, 6, 12]);
    assert.deepEqual(advertisement.modelDigest, MODEL);
    assert.deepEqual(advertisement.bootId, description.bootId);
    assert.equal(advertisement.engineClass, description.engineClass);
    assert.equal(advertisement.addresses.length, 4);
    assert.deepEqual(advertisement.seamEndpoints, ['127.0.0.1:4321']);
    assert.deepEqual(advertisement.seamCertificateSha256, sha256(CERTIFICATE));
    assert.deepEqual([advertisement.decodeUs, advertisement.prefillUs], [700, 100]);
    assert.equal(advertisement.cellsFree, 1000);
    assert.equal(advertisement.health, Health.UNVERIFIED);
    assert.equal(advertisement.expiresAtMs, BigInt(NOW_MS + 300_000));
    // A worker without direct connections has neither endpoints nor a certificate to pin.
    assert.deepEqual(tail?.advertisement.seamEndpoints, []);
    assert.equal(tail?.advertisement.seamCertificateSha256.byteLength, 0);
  });

  it('tells of what rests', async () => {
    resting = { sessions: 2, positions: 20 };
    const made = make();
    made.start();
    await once(rig.shards[0]?.worker ?? assert.fail(), 'report', soon());
    const told = (await made.localAdvertisements()).map(({ advertisement }) =>
      [advertisement.lanesResting, advertisement.cellsResting, advertisement.cellsFree]);
    assert.deepEqual(told, [[2, 20, 1000], [0, 0, 1000]]);
  });

  it('signs anew, with a higher sequence, when an advertisement is no longer fresh', async () => {
    let now = NOW_MS;
    const made = make({ now: () => now });
    made.start();
    const [first] = await made.localAdvertisements();
    assert.equal((await made.localAdvertisements())[0], first);
    now += 2_000;
    const [second] = await made.localAdvertisements();
    assert.ok((second?.advertisement.sequence ?? 0n) > (first?.advertisement.sequence ?? 0n));
    assert.equal(second?.advertisement.expiresAtMs, BigInt(now + 300_000));
  });

  it('says nothing before its start and after its stop', async () => {
    const made = make();
    assert.deepEqual(await made.localAdvertisements(), []);
    made.start();
    assert.equal((await made.localAdvertisements()).length, 2);
    await made.stop();
    assert.deepEqual(await made.localAdvertisements(), []);
  });

  it('announces a model once for all its shards, again while nobody takes it, and withdraws it at the end', async () => {
    taken = [0, new MeshnetError('DEADLINE_EXCEEDED'), 0];
    let count = 0;
    const fourth = Promise.withResolvers<void>();
    announced.on('provide', () => {
      if (++count === 4) {
        fourth.resolve();
      }
    });
    const made = make();
    made.start();
    await fourth.promise;
    const withdrawn = once(announced, 'withdraw', soon());
    await made.stop();
    await withdrawn;
    assert.equal(count, 4);
  });

  it('takes a shard back at once when its worker dies, and shows the next boot', async () => {
    const made = make();
    made.start();
    const before = await made.localAdvertisements();
    const [shard = assert.fail()] = rig.shards;
    const lost = once(shard, 'lost', soon());
    process.kill(shard.description?.pid ?? assert.fail(), 'SIGKILL');
    await lost;
    const during = await made.localAdvertisements();
    assert.deepEqual(during.map(({ advertisement }) => advertisement.layerFirst), [6]);
    await shard.serving(soon());
    const after = await made.localAdvertisements();
    assert.notDeepEqual(after[0]?.advertisement.bootId, before[0]?.advertisement.bootId);
  });
});
