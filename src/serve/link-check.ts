import { createHash } from 'node:crypto';
import { type AdvertisementRecord, type Verify, parseAdvertisement } from '../domain/advertisement.ts';
import { MeshnetError } from '../errors.ts';
import { type Link, SeamEnd } from '../proto/peer_pb.js';
import type { LeasedLane } from './lanes.ts';

/** What a Link says of the other end, once checked. */
export interface CheckedLink {
  readonly peerId: string;
  readonly advertisement: AdvertisementRecord['advertisement'];
  /** DER; empty when the other end takes no direct connections. */
  readonly certificate: Uint8Array;
  readonly certificateSha256: Uint8Array;
}

/**
 * Holds a Link against admission and the other end's own signature: where to dial and whom to let in never rest on the
 * gateway's word. The transport has checked the Link's shape.
 *
 * @throws {MeshnetError} MALFORMED, ROLE_INVALID, ADVERTISEMENT_INVALID, PEER_MISMATCH, MODEL_MISMATCH, RANGE_MISMATCH,
 *   DIGEST_MISMATCH
 */
export async function checkLink(
  link: Link,
  lane: LeasedLane,
  options: { readonly verify: Verify; readonly nowMs: number },
): Promise<CheckedLink> {
  const grant = lane.seams.get(link.end);
  if (grant === undefined || link.end === SeamEnd.ENTRY) {
    throw new MeshnetError('ROLE_INVALID', 'this lane has no such end to link', {
      details: { end: SeamEnd[link.end] ?? link.end },
    });
  }
  if (link.advertisement === undefined) {
    throw malformed('advertisement');
  }
  const { advertisement } = await parseAdvertisement(link.advertisement, options);
  if (advertisement.peerId !== grant.peerId) {
    throw new MeshnetError('PEER_MISMATCH', 'admission named another peer for this seam', {
      details: { peerId: advertisement.peerId },
    });
  }
  if (Buffer.compare(advertisement.modelDigest, lane.shard.modelDigest) !== 0) {
    throw new MeshnetError('MODEL_MISMATCH');
  }
  assertNeighbour(link.end, lane, advertisement);
  if (link.dial) {
    assertDialable(link, lane);
  }
  return { peerId: grant.peerId, advertisement, ...checkCertificate(link, advertisement.seamCertificateSha256) };
}

/** The other end of `end`. */
export function otherEnd(end: SeamEnd): SeamEnd {
  switch (end) {
    case SeamEnd.TO_NEXT:
      return SeamEnd.TO_PREVIOUS;
    case SeamEnd.TO_PREVIOUS:
      return SeamEnd.TO_NEXT;
    default:
      return end;
  }
}

/** The stage at the other end of `end`. */
function otherStage(end: SeamEnd, lane: LeasedLane): number {
  const { stage } = lane.key;
  switch (end) {
    case SeamEnd.TO_NEXT:
      return stage + 1;
    case SeamEnd.TO_PREVIOUS:
      return stage - 1;
    default:
      return stage === 0 ? lane.nStages - 1 : 0;
  }
}

function assertNeighbour(end: SeamEnd, lane: LeasedLane, other: AdvertisementRecord['advertisement']): void {
  const { first, last } = lane.shard.layers;
  const meets =
    end === SeamEnd.TO_NEXT ? other.layerFirst === last
    : end === SeamEnd.TO_PREVIOUS ? other.layerLast === first
    : lane.key.stage === 0 ? other.layerLast === lane.shard.nLayer
    : other.layerFirst === 0;
  if (!meets || other.nLayer !== lane.shard.nLayer) {
    throw new MeshnetError('RANGE_MISMATCH', undefined, {
      details: { first, last, otherFirst: other.layerFirst, otherLast: other.layerLast },
    });
  }
}

function assertDialable(link: Link, lane: LeasedLane): void {
  const { peerLane } = link;
  const same = peerLane !== undefined && peerLane.epoch === lane.key.epoch &&
    Buffer.compare(peerLane.session, lane.key.session) === 0 && peerLane.stage === otherStage(link.end, lane);
  if (!same) {
    throw malformed('peerLane');
  }
}

function checkCertificate(
  { seamCertificate: certificate }: Link,
  promised: Uint8Array,
): Pick<CheckedLink, 'certificate' | 'certificateSha256'> {
  if (certificate.byteLength === 0 && promised.byteLength === 0) {
    return { certificate, certificateSha256: promised };
  }
  const certificateSha256 = new Uint8Array(createHash('sha256').update(certificate).digest());
  if (Buffer.compare(certificateSha256, promised) !== 0) {
    throw new MeshnetError('DIGEST_MISMATCH', 'the seam certificate is not the one that was advertised', {
      details: { field: 'seamCertificate' },
    });
  }
  return { certificate, certificateSha256 };
}

function malformed(field: string): MeshnetError {
  return new MeshnetError('MALFORMED', `${field} of a Link is missing or wrong`, { details: { field } });
}
