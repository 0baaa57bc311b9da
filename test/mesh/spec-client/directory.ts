/** Finding shards: the providers of a model, what each says of itself, and a chain of shards over all layers. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Libp2p, PeerId } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { CID } from 'multiformats/cid';
import { create as createMultihash } from 'multiformats/hashes/digest';
import { decode, encode } from './codec.ts';
import { ensure, fromWire } from './errors.ts';
import { openStream } from './host.ts';
import { Advertisement, DirectoryReply, DirectoryRequest, type SignedAdvertisement } from './messages.ts';

const RAW = 0x55;
const SHA2_256 = 0x12;
const ASK_MS = 5000;
/** Between two walks of the DHT while layers are missing. */
const AGAIN_MS = 250;

export interface Shard {
  peer: PeerId;
  advertisement: Advertisement;
  /** Verbatim, for Link. */
  signed: SignedAdvertisement;
}

/** Asks providers until their shards chain up to a route; throws the signal's reason when they never do. */
export async function findRoute(host: Libp2p, modelDigest: Uint8Array, signal: AbortSignal): Promise<Shard[]> {
  const key = CID.createV1(RAW, createMultihash(SHA2_256, modelDigest));
  for (;;) {
    const shards = new Map<string, Shard>();
    for await (const provider of host.contentRouting.findProviders(key, { signal })) {
      if (provider.id.equals(host.peerId)) {
        continue;
      }
      if (provider.multiaddrs.length > 0) {
        await host.peerStore.merge(provider.id, { multiaddrs: provider.multiaddrs });
      }
      const limit = AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)]);
      for (const shard of await askShards(host, provider.id, modelDigest, limit).catch(() => [])) {
        keepNewest(shards, shard);
      }
      const route = chain([...shards.values()]);
      if (route !== undefined) {
        return route;
      }
    }
    await pause(AGAIN_MS, undefined, { signal });
  }
}

/** The advertisements of one peer, each checked. A peer that sends a wrong one is not believed at all. */
async function askShards(host: Libp2p, peer: PeerId, modelDigest: Uint8Array, signal: AbortSignal): Promise<Shard[]> {
  const stream = await openStream(host, peer, '/meshnet/directory/1', signal);
  await stream.send(encode(DirectoryRequest, { modelDigest }), signal);
  const answer = await stream.receive(signal);
  ensure(answer !== undefined, 'the directory closed without an answer');
  ensure(answer.length <= 128 * 1024, 'the answer of the directory is too long');
  await stream.close(signal);
  const reply = decode(DirectoryReply, answer);
  if (reply.error !== undefined) {
    throw fromWire(reply.error);
  }
  ensure(reply.advertisements.length <= 64, 'too many advertisements');
  return Promise.all(reply.advertisements.map((signed) => verify(signed, peer, modelDigest, Date.now())));
}

export async function verify(
  signed: SignedAdvertisement,
  from: PeerId,
  modelDigest: Uint8Array,
  now: number,
): Promise<Shard> {
  ensure(signed.advertisement.length <= 1024, 'an advertisement is longer than 1 KiB');
  const advertisement = decode(Advertisement, signed.advertisement);
  const { version, peerId, layerFirst, layerLast, nLayer, bootId, addresses, seamEndpoints } = advertisement;
  ensure(version === 1, `version ${version} of an advertisement`);
  const peer = peerIdFromString(peerId);
  ensure(peer.equals(from), 'the advertisement speaks of another peer');
  ensure(peer.type === 'Ed25519', 'the peer id holds no Ed25519 key');
  const prefix = Buffer.from('meshnet-advertisement-v1\0', 'ascii');
  const said = Buffer.concat([prefix, signed.advertisement]);
  ensure(await peer.publicKey.verify(said, signed.signature), 'the signature is wrong');
  ensure(Buffer.compare(advertisement.modelDigest, modelDigest) === 0, 'the advertisement speaks of another model');
  ensure(layerFirst < layerLast && layerLast <= nLayer, 'the layer range is wrong');
  ensure(bootId.length === 16, 'the boot id is not 16 bytes');
  ensure(addresses.length <= 4 && seamEndpoints.length <= 4, 'too many addresses');
  const left = Number(advertisement.expiresAtMs) - now;
  ensure(left > 0 && left <= 15 * 60_000, 'the advertisement has expired or lives too long');
  return { peer, advertisement, signed };
}

/** Of one (peer, range) the newest boot counts, then the highest sequence. */
function keepNewest(shards: Map<string, Shard>, shard: Shard): void {
  const { peerId, layerFirst, layerLast } = shard.advertisement;
  const key = `${peerId} ${layerFirst}-${layerLast}`;
  const old = shards.get(key);
  if (old === undefined || age(shard) > age(old)) {
    shards.set(key, shard);
  }
}

function age({ advertisement }: Shard): bigint {
  return (Buffer.from(advertisement.bootId).readBigUInt64BE(0) << 64n) + advertisement.sequence;
}

/** The first chain found, longest steps first; neighbours agree about the boundary between them. */
export function chain(shards: Shard[], done: Shard[] = []): Shard[] | undefined {
  const last = done.at(-1)?.advertisement;
  const at = last?.layerLast ?? 0;
  if (last !== undefined && at === last.nLayer) {
    return done;
  }
  const next = shards
    .filter(({ advertisement }) => advertisement.layerFirst === at && (last === undefined || meet(last, advertisement)))
    .toSorted((a, b) => b.advertisement.layerLast - a.advertisement.layerLast);
  for (const shard of next) {
    const route = done.length < 16 ? chain(shards, [...done, shard]) : undefined;
    if (route !== undefined) {
      return route;
    }
  }
  return undefined;
}

function meet(earlier: Advertisement, later: Advertisement): boolean {
  const names = (list: Advertisement['boundaryIn']): string => list.map(({ name, width }) => `${name}:${width}`).join();
  return earlier.nLayer === later.nLayer && names(earlier.boundaryOut) === names(later.boundaryIn);
}
