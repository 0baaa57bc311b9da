import { toString as bytesToString } from 'uint8arrays/to-string';

/** A session at one stage: the key of everything that a stage holds for it. */
export interface LaneKey {
  /** 16 random bytes. */
  readonly session: Uint8Array;
  readonly epoch: number;
  readonly stage: number;
}

/** For maps. */
export function laneId(lane: LaneKey): string {
  return `${bytesToString(lane.session, 'hex')}/${lane.epoch}/${lane.stage}`;
}

/** For log lines: the same short id in every line of a session. */
export function shortSession(session: Uint8Array): string {
  return bytesToString(session.subarray(0, 4), 'hex');
}
