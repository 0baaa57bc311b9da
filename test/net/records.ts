import type { MessageInitShape } from '@bufbuild/protobuf';
import { signAdvertisement, type AdvertisementRecord } from '../../src/domain/advertisement.ts';
import type { Identity } from '../../src/net/identity.ts';
import { Health, type AdvertisementSchema } from '../../src/proto/peer_pb.js';
import { makeBootId } from '../support/boot-id.ts';

export const NOW_MS = 1_800_000_000_000;
export const MODEL = new Uint8Array(32).fill(6);

/** Some of its fields. */
export type Change = Partial<Omit<MessageInitShape<typeof AdvertisementSchema>, '$typeName' | '$unknown'>>;

/** A valid advertisement of a shard, apart from what is changed. */
export function advertisementOf(peerId: string, change: Change = {}) {
  return {
    peerId, modelDigest: MODEL, layerFirst: 0, layerLast: 4, nLayer: 8, engineClass: 'cpu-avx2', sequence: 1n,
    bootId: makeBootId(NOW_MS - 1000, new Uint8Array(8).fill(1)),
    addresses: ['/ip4/127.0.0.1/tcp/4001'], seamEndpoints: ['127.0.0.1:5001'],
    seamCertificateSha256: new Uint8Array(32).fill(2), expiresAtMs: BigInt(NOW_MS + 60_000), health: Health.SERVING,
    ...change,
  };
}

export function recordOf(identity: Identity, change: Change = {}): Promise<AdvertisementRecord> {
  return signAdvertisement(advertisementOf(identity.peerId, change), (bytes) => identity.sign(bytes), NOW_MS);
}
