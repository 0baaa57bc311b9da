import { lawMs } from '../mesh/measures.ts';
import { number } from '../runner/figures.ts';
import { ratioOf, type Measures, type Ratio, type Rounds } from '../runner/rounds.ts';
import type { GridLane, LongLane, SystemName, WarmLane } from './lanes.ts';

export type LongPart = 'undisturbed' | 'alone' | 'beside';
export type WarmPart = 'second' | 'cold';

/** Figures of a lane, with the names that `contract.ts` judges. */
export function gridRatios({ loads, delay }: GridLane, rounds: Rounds<SystemName>): Record<string, Ratio> {
  const { sessions } = loads.mesh;
  const decode = (of: SystemName, over: SystemName): Ratio =>
    ratioOf(rounds, (runs) => number(runs[of], 'decode') / number(runs[over], 'decode'));
  return {
    [`mesh${sessions}_over_one8_${delay}ms`]: decode('mesh', 'one8'),
    ...sessions === 1
      ? { [`delay_law_${delay}ms`]: ratioOf(rounds, ({ mesh }) => number(mesh, 'step_mean_ms') / lawMs(computeMs(mesh), delay)) }
      : { [`jain_mesh${sessions}_${delay}ms`]: ratioOf(rounds, ({ mesh }) => number(mesh, 'jain')) },
    ...loads.stock8 === undefined ? {} : { one8_over_stock8: decode('one8', 'stock8') },
  };
}

export function longRatios({ delay }: LongLane, rounds: Rounds<LongPart>): Record<string, Ratio> {
  const over = (measure: string, opponent: LongPart): Ratio =>
    ratioOf(rounds, (runs) => number(runs.beside, measure) / number(runs[opponent], measure));
  return {
    [`decoders_p95_over_undisturbed_${delay}ms`]: over('step_p95_ms', 'undisturbed'),
    [`long_first_token_over_alone_${delay}ms`]: over('first_token_ms', 'alone'),
  };
}

export function warmRatios({ delay }: WarmLane, rounds: Rounds<WarmPart>): Record<string, Ratio> {
  return {
    [`second_turn_ttft_over_cold_${delay}ms`]:
      ratioOf(rounds, ({ second, cold }) => number(second, 'first_token_ms') / number(cold, 'first_token_ms')),
  };
}

/** Of a token at all stages. @returns NaN when they did not tell */
function computeMs(measures: Measures): number {
  const stages = measures['stage_compute_ms'];
  return typeof stages !== 'object' || stages === null || stages.length === 0 ? Number.NaN
    : stages.reduce((sum, ms) => sum + ms, 0);
}
