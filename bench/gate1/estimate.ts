import { work, type GateLane } from './lanes.ts';

/** A lane that has been measured. */
export interface Spent {
  readonly lane: GateLane;
  readonly roundMs: number;
}

/** Relative work per millisecond before anything was measured: two cores of a server of 2023, five systems a round. */
const FIRST_RATE = 24_000;
/** Starting, warming up and stopping the systems, and a probe on each side of a round. */
const AROUND_LANE_MS = 30_000;
const AROUND_ROUND_MS = 3_000;

/**
 * Milliseconds that lanes still to come may take, at the speed of the last one: the lanes grow, and the speed of a
 * small one says little.
 */
export function remainingMs(rest: readonly GateLane[], spent: readonly Spent[]): number {
  const last = spent.at(-1);
  const rate = last === undefined ? FIRST_RATE : work(last.lane) / last.roundMs;
  return rest.reduce((sum, lane) => {
    const roundMs = work(lane) / rate;
    return sum + AROUND_LANE_MS + roundsOf(roundMs) * (roundMs + AROUND_ROUND_MS);
  }, 0);
}

/** By the contract. */
function roundsOf(roundMs: number): number {
  return roundMs > 180_000 ? 2 : roundMs > 60_000 ? 3 : 5;
}
