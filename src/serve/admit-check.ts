import { assertCertified } from '../domain/certificate.ts';
import { LIMITS } from '../domain/limits.ts';
import { formatLayerRange } from '../domain/shard.ts';
import { MeshnetError } from '../errors.ts';
import { type Admit, SeamEnd } from '../proto/peer_pb.js';
import type { Lane } from '../proto/seam_pb.js';
import type { ShardService } from './shard-service.ts';

const ADMIT_VERSION = 1;
/** When to ask again for a shard that is on its way. */
const NOT_SERVING_RETRY_MS = 5_000;

/** The parts of an Admit that are always there, once checked. */
export interface CheckedAdmit {
  readonly lane: Lane;
  readonly shard: ShardService;
  /** Peer at the other end of each seam. */
  readonly seams: ReadonlyMap<SeamEnd, string>;
}

/**
 * Everything about an Admit that needs no ledger. The transport has checked its shape.
 *
 * @throws {MeshnetError} VERSION_UNSUPPORTED, MALFORMED, LIMIT_EXCEEDED, MODEL_UNKNOWN, RANGE_INVALID, RANGE_MISMATCH,
 *   PEER_MISMATCH, DRAINING, NOT_SERVING, NOT_CERTIFIED
 */
export function checkAdmit(
  admit: Admit,
  shards: readonly ShardService[],
  asker: { readonly peerId: string; readonly anyDtype: boolean },
): CheckedAdmit {
  if (admit.version !== ADMIT_VERSION) {
    throw new MeshnetError('VERSION_UNSUPPORTED', undefined, {
      details: { version: admit.version, supported: ADMIT_VERSION },
    });
  }
  const { lane } = admit;
  if (lane === undefined || lane.session.byteLength !== LIMITS.sessionBytes) {
    throw malformed('lane');
  }
  if (admit.nStages < 1 || admit.nStages > LIMITS.stagesPerRoute || lane.stage >= admit.nStages) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'a route has 1 to 16 stages, numbered from 0', {
      details: { field: 'nStages', stages: admit.nStages, lane: lane.stage, limit: LIMITS.stagesPerRoute },
    });
  }
  const shard = shardFor(admit, shards);
  assertPlace(admit, lane.stage, shard.nLayer);
  const seams = checkSeams(admit, lane.stage, asker.peerId);
  assertServing(shard);
  assertCertified({
    architecture: shard.description?.architecture ?? '',
    engineClass: shard.description?.engineClass ?? '',
    prefillDtype: admit.prefillDtype,
    decodeDtype: admit.decodeDtype,
  }, asker.anyDtype);
  return { lane, shard, seams };
}

function shardFor(admit: Admit, shards: readonly ShardService[]): ShardService {
  const ofModel = shards.filter((shard) => Buffer.compare(shard.modelDigest, admit.modelDigest) === 0);
  if (ofModel.length === 0) {
    throw new MeshnetError('MODEL_UNKNOWN', 'no shard of this model is served here');
  }
  const exact = ofModel.filter(({ layers }) => layers.first === admit.layerFirst && layers.last === admit.layerLast);
  const shard = exact.find(({ state }) => state === 'serving') ?? exact[0];
  if (shard === undefined) {
    throw new MeshnetError('RANGE_INVALID', 'these layers are not served here', {
      details: {
        asked: formatLayerRange({ first: admit.layerFirst, last: admit.layerLast }),
        served: ofModel.map(({ layers }) => formatLayerRange(layers)).join(' '),
      },
    });
  }
  return shard;
}

/** A head starts at layer 0, a tail ends at the last one, and nobody else does. */
function assertPlace(admit: Admit, stage: number, nLayer: number): void {
  const isHead = stage === 0;
  const isTail = stage === admit.nStages - 1;
  if (isHead !== (admit.layerFirst === 0) || isTail !== (admit.layerLast === nLayer)) {
    throw new MeshnetError('RANGE_MISMATCH', 'these layers do not belong at this place of the route', {
      details: { stage, stages: admit.nStages, layerFirst: admit.layerFirst, layerLast: admit.layerLast, nLayer },
    });
  }
}

function checkSeams(admit: Admit, stage: number, askerId: string): Map<SeamEnd, string> {
  const last = admit.nStages - 1;
  const wanted = [
    stage === 0 ? SeamEnd.ENTRY : SeamEnd.TO_PREVIOUS,
    ...(stage < last ? [SeamEnd.TO_NEXT] : []),
    ...(last >= 2 && (stage === 0 || stage === last) ? [SeamEnd.LOOP] : []),
  ];
  const seams = new Map(admit.seams.map(({ end, peerId }) => [end, peerId]));
  if (admit.seams.length !== wanted.length || !wanted.every((end) => seams.has(end))) {
    throw malformed('seams');
  }
  if (stage === 0 && seams.get(SeamEnd.ENTRY) !== askerId) {
    throw new MeshnetError('PEER_MISMATCH', 'the entry seam belongs to the peer that asks for admission', {
      details: { peerId: askerId },
    });
  }
  return seams;
}

function assertServing(shard: ShardService): void {
  if (shard.state === 'draining') {
    throw new MeshnetError('DRAINING');
  }
  if (shard.state === 'failed' && shard.error?.code === 'NOT_CERTIFIED') {
    throw shard.error;
  }
  if (shard.state !== 'serving') {
    const retryAfterMs = shard.state === 'failed' ? 0 : NOT_SERVING_RETRY_MS;
    throw new MeshnetError('NOT_SERVING', undefined, { details: { state: shard.state, retryAfterMs } });
  }
}

function malformed(field: string): MeshnetError {
  return new MeshnetError('MALFORMED', `${field} of an Admit is missing or wrong`, { details: { field } });
}
