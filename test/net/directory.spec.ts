import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import type { AdvertisementRecord } from '../../src/domain/advertisement.ts';
import { Directory, DIRECTORY } from '../../src/net/directory.ts';
import type { Host } from '../../src/net/host.ts';
import { generateIdentity, type Identity } from '../../src/net/identity.ts';
import { DirectoryReplySchema, type SignedAdvertisement } from '../../src/proto/peer_pb.js';
import { ManualClock } from './manual-clock.ts';
import { MODEL, NOW_MS, recordOf } from './records.ts';
import { rejects, Rig, SOON, targetOf } from './rig.ts';

describe('net/directory', () => {
  const rig = new Rig();
  let identity: Identity;
  let shardHost: Host;
  let seekerHost: Host;
  let clock: ManualClock;
  let seeker: Directory;
  let local: AdvertisementRecord[];

  beforeEach(async () => {
    identity = await generateIdentity();
    shardHost = await rig.host({}, { identity });
    seekerHost = await rig.host();
    clock = new ManualClock();
    local = [];
    await new Directory({ host: shardHost, clock, now: () => NOW_MS }).serve(async () => local);
    seeker = new Directory({ host: seekerHost, now: () => NOW_MS });
  });
  afterEach(() => rig.stop());

  const ask = (range?: { first: number; last: number }) => seeker.get(targetOf(shardHost), { modelDigest: MODEL, ...(range && { range }) }, SOON);
  const ranges = (records: AdvertisementRecord[]) =>
    records.map(({ advertisement }) => [advertisement.layerFirst, advertisement.layerLast]);

  it('gives the advertisements of the model whose range overlaps', async () => {
    local = [
      await recordOf(identity), await recordOf(identity, { layerFirst: 4, layerLast: 8 }),
      await recordOf(identity, { modelDigest: new Uint8Array(32).fill(7) }),
    ];
    assert.deepEqual(ranges(await ask()), [[0, 4], [4, 8]]);
    assert.deepEqual(ranges(await ask({ first: 4, last: 5 })), [[4, 8]]);
    assert.deepEqual(ranges(await ask({ first: 3, last: 5 })), [[0, 4], [4, 8]]);
    local = [];
    assert.deepEqual(await ask(), []);
  });

  it('leaves out what is not the peer\'s own, was changed, or has expired, and keeps the rest', async () => {
    const other = await generateIdentity();
    const good = await recordOf(identity);
    const changed: SignedAdvertisement = { ...good.signed, signature: good.signed.signature.map((byte) => byte ^ 1) };
    local = [
      await recordOf(other), { ...good, signed: changed }, good,
      { ...good, signed: { ...good.signed, advertisement: new Uint8Array(2000) } },
    ];
    assert.deepEqual(ranges(await ask()), [[0, 4]]);
    seeker = new Directory({ host: seekerHost, now: () => NOW_MS + 3_600_000 });
    assert.deepEqual(await ask(), []);
  });

  it('refuses a peer that asks too often and says when it may ask again', async () => {
    for (let i = 0; i < 32; i++) {
      await ask();
    }
    await rejects(ask(), 'RATE_EXCEEDED', { retryAfterMs: 250 });
    clock.advance(250);
    await ask();
  });

  it('refuses a digest of another length', async () => {
    const short = seeker.get(targetOf(shardHost), { modelDigest: new Uint8Array(3) }, SOON);
    await rejects(short, 'MALFORMED', { field: 'modelDigest' });
  });

  it('gives no more than one answer may hold', async () => {
    const one = await recordOf(identity);
    local = Array.from({ length: LIMITS.advertisementsPerReply + 9 }, () => one);
    assert.equal((await ask()).length, LIMITS.advertisementsPerReply);
  });

  it('ends its question when the peer is silent, floods or sends garbage', async () => {
    await shardHost.handle(DIRECTORY, async () => undefined);
    await rejects(seeker.get(targetOf(shardHost), { modelDigest: MODEL }, { timeoutMs: 50 }), 'DEADLINE_EXCEEDED');
    await shardHost.handle(DIRECTORY, (stream) => stream.writeBytes(new Uint8Array(LIMITS.directoryReplyBytes + 1), SOON));
    await rejects(ask(), 'FRAME_TOO_LARGE');
    await shardHost.handle(DIRECTORY, (stream) => stream.writeBytes(Uint8Array.of(0xff), SOON));
    await rejects(ask(), 'MALFORMED');
    const advertisements = Array.from({ length: LIMITS.advertisementsPerReply + 1 }, () => ({}));
    await shardHost.handle(DIRECTORY, (stream) => stream.write(DirectoryReplySchema, { advertisements }, SOON));
    await rejects(ask(), 'LIMIT_EXCEEDED');
    await shardHost.handle(DIRECTORY, async (stream) => stream.abort());
    await rejects(ask(), 'STREAM_ENDED');
  });

  it('resets the streams of one peer beyond those that it may have', async () => {
    await shardHost.handle({ ...DIRECTORY, maxStreamsPerPeer: 2 }, async () => undefined);
    const open = async () => seekerHost.open(targetOf(shardHost), DIRECTORY, SOON);
    await open();
    await open();
    await rejects((await open()).readBytes(8, SOON), 'STREAM_ENDED', { reason: 'reset' });
  });

  it('resets a question that is longer than any may be', async () => {
    const stream = await seekerHost.open(targetOf(shardHost), DIRECTORY, SOON);
    const served = new Promise<void>((resolve) => stream.onClose(resolve));
    await stream.writeBytes(new Uint8Array(LIMITS.directoryRequestBytes + 1), SOON);
    await served;
  });
});
