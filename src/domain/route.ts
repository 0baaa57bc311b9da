import type { LayerRange } from './shard.ts';

/** How the two ends of a seam reach each other. */
export type PathKind = 'direct-grpc' | 'libp2p' | 'webrtc' | 'relay' | 'local' | 'unknown';

/** A shard that a peer says it serves, as far as planning looks at it. */
export interface Candidate {
  readonly peerId: string;
  readonly range: LayerRange;
  readonly engineClass: string;
  /** 32 hex digits; orders the boots of one worker. */
  readonly bootId: string;
  /** Measured time of one decode step, µs. */
  readonly decodeUs: number;
  /** Sessions that it serves now. */
  readonly lanes: number;
  readonly sequencesFree: number;
  readonly cellsFree: number;
  /** Of those sessions the ones between two turns, which it ends when others need their room. */
  readonly lanesResting: number;
  readonly cellsResting: number;
  /** No other peer has dialled it back yet. */
  readonly unverified: boolean;
}

/** One stage of a route. */
export interface Stage<C extends Candidate = Candidate> {
  readonly stage: number;
  readonly candidate: C;
}

/** What people are shown of a route. */
export interface RouteSummary {
  readonly epoch: number;
  readonly stages: readonly { readonly peer: string; readonly layers: readonly [number, number]; readonly path: PathKind }[];
}

/** The same (peer, range, boot) is the same candidate. */
export function candidateId(candidate: Candidate): string {
  return `${candidate.peerId}/${candidate.range.first}-${candidate.range.last}/${candidate.bootId}`;
}
