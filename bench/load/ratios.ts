import { number } from '../runner/figures.ts';
import { ratioOf, type Ratio, type Rounds } from '../runner/rounds.ts';
import type { Phase } from './lanes.ts';

export type StallPart = 'undisturbed' | 'stalled';
export type OverloadPart = 'capacity' | 'overload';

/** Figures of a lane, with the names that `contract.ts` judges. */
export function stallRatios(rounds: Rounds<StallPart>): Record<string, Ratio> {
  return {
    stall_rss_growth_mib: ratioOf(rounds, ({ stalled }) => number(stalled, 'rss_growth_mib')),
    stall_others_speed: ratioOf(rounds, ({ stalled, undisturbed }) => number(stalled, 'decode') / number(undisturbed, 'decode')),
  };
}

export function disconnectRatios(phase: Phase, rounds: Rounds<'mesh'>): Record<string, Ratio> {
  return { [`disconnect_${phase}_ms`]: ratioOf(rounds, ({ mesh }) => number(mesh, 'free_ms')) };
}

export function overloadRatios(rounds: Rounds<OverloadPart>): Record<string, Ratio> {
  const of = (measure: string): Ratio => ratioOf(rounds, ({ overload }) => number(overload, measure));
  return {
    overload_admitted_speed: ratioOf(rounds, ({ overload, capacity }) =>
      number(overload, 'session_tok_s') / number(capacity, 'session_tok_s')),
    overload_untyped: of('untyped'),
    overload_rss_back_mib: of('rss_back_mib'),
    overload_fds_back: of('fds_back'),
    overload_left: of('left'),
  };
}
