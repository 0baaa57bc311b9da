import { llamaRecipe } from '../limits/arithmetic.ts';
import { laneReached, type LaneReached } from '../limits/lane-limits.ts';
import type { MachineLimits } from '../limits/machine-limits.ts';
import { readModelShape } from '../limits/model-shape.ts';
import { medianOf } from '../runner/figures.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import type { Load } from './measures.ts';
import { UBATCH } from './systems.ts';

export type SystemLimits = Pick<LaneReached, 'decode' | 'prefill'>;

export interface LimitsParts {
  readonly record: Pick<LaneRecord, 'rounds'>;
  readonly file: string;
  /** Of one core. */
  readonly machine: MachineLimits;
}

/**
 * How near each system of a lane, with what it was asked for, comes to what one core can do; with many sessions, two cores
 * of a mesh can do twice as much.
 */
export async function limitsOf(
  loads: Readonly<Record<string, Load>>, { record, file, machine }: LimitsParts,
): Promise<Record<string, SystemLimits>> {
  const shape = await readModelShape(file);
  return Object.fromEntries(Object.entries(loads).map(([name, { sessions, prompt: context, output }]) => {
    const tokens = medianOf(record, name, 'decode');
    const { decode, prefill } = laneReached(name, {
      shape, recipe: llamaRecipe(shape), limits: machine, context, output, sessions, ubatch: UBATCH,
    }, { stepMs: sessions / tokens * 1000, prefillMs: medianOf(record, name, 'prefill_ms') });
    return [name, { decode, prefill }];
  }));
}
