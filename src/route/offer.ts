import { toString as bytesToString } from 'uint8arrays/to-string';
import type { AdvertisementRecord } from '../domain/advertisement.ts';
import type { Candidate } from '../domain/route.ts';
import { Health, type SignedAdvertisement } from '../proto/peer_pb.js';

/** A shard that a peer advertises, with what is needed to open a lane there. */
export interface Offer extends Candidate {
  readonly modelDigest: Uint8Array;
  readonly nLayer: number;
  /** Multiaddrs. */
  readonly addresses: readonly string[];
  /** Of the boot that it was signed for; empty when it takes no direct connections. */
  readonly seamCertificateSha256: Uint8Array;
  /** As it was signed, to be forwarded verbatim. */
  readonly signed: SignedAdvertisement;
}

export function offerOf({ advertisement, signed }: AdvertisementRecord): Offer {
  return {
    peerId: advertisement.peerId,
    range: { first: advertisement.layerFirst, last: advertisement.layerLast },
    nLayer: advertisement.nLayer,
    modelDigest: advertisement.modelDigest,
    engineClass: advertisement.engineClass,
    bootId: bytesToString(advertisement.bootId, 'hex'),
    decodeUs: advertisement.decodeUs,
    lanes: advertisement.lanes,
    sequencesFree: advertisement.sequencesFree,
    cellsFree: advertisement.cellsFree,
    lanesResting: advertisement.lanesResting,
    cellsResting: advertisement.cellsResting,
    unverified: advertisement.health !== Health.SERVING,
    addresses: advertisement.addresses,
    seamCertificateSha256: advertisement.seamCertificateSha256,
    signed,
  };
}
