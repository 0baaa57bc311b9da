import { llamaRecipe } from '../limits/arithmetic.ts';
import { laneReached, type LaneReached } from '../limits/lane-limits.ts';
import type { MachineLimits } from '../limits/machine-limits.ts';
import { readModelShape } from '../limits/model-shape.ts';
import { medianOf } from '../runner/figures.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import type { SpeedLane } from './lanes.ts';
import { UBATCH } from './systems.ts';

export type SystemLimits = Pick<LaneReached, 'decode' | 'prefill'>;

export interface LimitsParts {
  readonly record: LaneRecord;
  readonly file: string;
  /** Of one core. */
  readonly machine: MachineLimits;
}

/** How near each system comes to what one core can do; with many sessions, two cores of a mesh can do twice as much. */
export async function limitsOf(
  lane: SpeedLane, { record, file, machine }: LimitsParts,
): Promise<Record<string, SystemLimits>> {
  const shape = await readModelShape(file);
  const { prompt: context, output, sessions } = lane;
  return Object.fromEntries(lane.systems.map((name) => {
    const tokens = medianOf(record, name, 'decode');
    const { decode, prefill } = laneReached(name, {
      shape, recipe: llamaRecipe(shape), limits: machine, context, output, sessions, ubatch: UBATCH,
    }, { stepMs: sessions / tokens * 1000, prefillMs: medianOf(record, name, 'prefill_ms') });
    return [name, { decode, prefill }];
  }));
}
