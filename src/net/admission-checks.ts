import { LIMITS } from '../domain/limits.ts';
import { MeshnetError } from '../errors.ts';
import { SeamEnd, type Admit, type Admitted, type Link } from '../proto/peer_pb.js';
import type { Lane } from '../proto/seam_pb.js';
import { isPeerId } from './identity.ts';

/** One for every end that a lane can have. */
const SEAMS = 4;

/** Shape and limits of what a seeker sent; what it asks for is for admission to judge. @throws {MeshnetError} */
export function checkAdmit(admit: Admit): void {
  checkLane(admit.lane);
  checkBytes('modelDigest', admit.modelDigest, LIMITS.digestBytes);
  checkCount('seams', admit.seams.length, SEAMS);
  if (new Set(admit.seams.map(({ end }) => end)).size !== admit.seams.length) {
    throw malformed('seams', 'twice');
  }
  for (const { end, peerId } of admit.seams) {
    checkEnd(end);
    if (!isPeerId(peerId)) {
      throw malformed('peerId', 'no peer id');
    }
  }
  if (admit.layerFirst >= admit.layerLast || admit.layerLast > LIMITS.layersPerModel) {
    throw new MeshnetError('RANGE_INVALID', undefined, { details: { first: admit.layerFirst, last: admit.layerLast } });
  }
  if (admit.nStages < 1 || admit.nStages > LIMITS.stagesPerRoute) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'a route has too many stages or none', {
      details: { field: 'nStages', count: admit.nStages, limit: LIMITS.stagesPerRoute },
    });
  }
}

/** @throws {MeshnetError} */
export function checkLink(link: Link): void {
  checkEnd(link.end);
  checkLane(link.peerLane);
  checkBytes('ticket', link.ticket, LIMITS.ticketBytes);
  checkCount('seamCertificate', link.seamCertificate.byteLength, LIMITS.seamCertificateBytes);
  if (link.advertisement === undefined) {
    throw malformed('advertisement', 'missing');
  }
}

/** What a stage answered. @throws {MeshnetError} */
export function checkAdmitted(admitted: Admitted): void {
  checkCount('tickets', admitted.tickets.length, SEAMS);
  checkCount('seamCertificate', admitted.seamCertificate.byteLength, LIMITS.seamCertificateBytes);
  for (const { end, ticket } of admitted.tickets) {
    checkEnd(end);
    checkBytes('ticket', ticket, LIMITS.ticketBytes);
  }
}

export function checkLane(lane: Lane | undefined): void {
  if (lane === undefined) {
    throw malformed('lane', 'missing');
  }
  checkBytes('session', lane.session, LIMITS.sessionBytes);
  if (lane.epoch === 0) {
    throw malformed('epoch', 'missing');
  }
  if (lane.stage >= LIMITS.stagesPerRoute) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'a stage number is too high', {
      details: { field: 'stage', count: lane.stage, limit: LIMITS.stagesPerRoute - 1 },
    });
  }
}

export function checkEnd(end: SeamEnd): void {
  if (end === SeamEnd.UNSPECIFIED || SeamEnd[end] === undefined) {
    throw malformed('end', 'unknown');
  }
}

export function checkBytes(field: string, bytes: Uint8Array, length: number): void {
  if (bytes.byteLength !== length) {
    throw malformed(field, `${bytes.byteLength} bytes instead of ${length}`);
  }
}

function checkCount(field: string, count: number, limit: number): void {
  if (count > limit) {
    throw new MeshnetError('LIMIT_EXCEEDED', `${field} is above its limit`, { details: { field, count, limit } });
  }
}

function malformed(field: string, what: string): MeshnetError {
  return new MeshnetError('MALFORMED', `${field}: ${what}`, { details: { field } });
}
