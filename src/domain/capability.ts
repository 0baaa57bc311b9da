import { MeshnetError } from '../errors.ts';
import type { Description, ProbeReply, Report } from '../proto/worker_pb.js';

/** Positions that a session may ask for at all, far above any context that a worker can hold. */
export const MAX_SESSION_POSITIONS = 1_048_576;

/** What a worker can do now, measured. */
export interface Capability {
  /** Of one session: the model's context or all cells, whichever is less. */
  readonly maxPositions: number;
  /** Positions of one compute unit. */
  readonly maxChunkTokens: number;
  readonly lanes: number;
  readonly sequencesFree: number;
  readonly cellsFree: number;
  /** One decode step of one session. */
  readonly decodeUs: number;
  /** One position in a chunk. */
  readonly prefillUs: number;
}

/** Sessions between two turns, which the shard ends when others need their room. */
export interface AtRest {
  readonly sessions: number;
  /** That they have together. */
  readonly positions: number;
}

export interface Measured {
  readonly description: Description;
  readonly probe: ProbeReply;
  /** Positions of the probe's chunk. */
  readonly probeTokens: number;
  /** The newest, when there is one. */
  readonly report?: Report;
}

export function capabilityOf({ description, probe, probeTokens, report }: Measured): Capability {
  const budget = report?.budget ?? description.budget;
  const cells = budget?.cellsTotal ?? 0;
  return {
    maxPositions: description.nCtxTrain > 0 ? Math.min(cells, description.nCtxTrain) : cells,
    maxChunkTokens: description.maxChunkTokens,
    lanes: report?.lanes ?? 0,
    sequencesFree: budget?.sequencesFree ?? 0,
    cellsFree: budget?.cellsFree ?? 0,
    decodeUs: probe.decodeUs,
    prefillUs: Math.ceil(probe.prefillUs / Math.max(1, probeTokens)),
  };
}

/**
 * What a session gets of the positions that it asks for. Whether they are free is for the worker's ledger to say.
 *
 * @throws {MeshnetError} LIMIT_EXCEEDED when no answer makes sense
 */
export function grantedPositions(capability: Capability, asked: number): number {
  if (asked < 1 || asked > MAX_SESSION_POSITIONS) {
    throw new MeshnetError('LIMIT_EXCEEDED', `a session cannot have ${asked} positions`, {
      details: { field: 'positions', asked, limit: MAX_SESSION_POSITIONS },
    });
  }
  return Math.min(asked, capability.maxPositions);
}
