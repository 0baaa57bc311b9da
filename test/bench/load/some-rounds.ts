import type { OverloadPart, StallPart } from '../../../bench/load/ratios.ts';
import type { Measures, Round, Rounds } from '../../../bench/runner/rounds.ts';

/** One round that counts. */
export function roundsOf<S extends string>(runs: Readonly<Record<S, Measures>>): Rounds<S> {
  const round: Round<S> = { order: Object.keys(runs) as S[], probe: 1, pressure: { load: 0, cpuAvg10: 0 }, wallMs: 1000, runs };
  return { good: [round], discarded: [], contended: false, long: false };
}

export const STALL: Rounds<StallPart> = roundsOf({
  undisturbed: { decode: 40, rss_growth_mib: 3 }, stalled: { decode: 38, rss_growth_mib: 5 },
});

export const OVERLOAD: Rounds<OverloadPart> = roundsOf({
  capacity: { session_tok_s: 5 },
  overload: { session_tok_s: 4, untyped: 0, rss_back_mib: 2, fds_back: -1, left: 0 },
});
