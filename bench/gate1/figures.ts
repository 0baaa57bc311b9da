import type { LaneRecord } from '../runner/record.ts';
import { ratioOfValues, type Ratio } from '../runner/rounds.ts';
import { median } from '../runner/statistics.ts';

/** The median over the rounds that count. @returns NaN when the system was not measured */
export function medianOf(lane: LaneRecord, system: string, measure: string): number {
  return median(valuesOf(lane, system, measure));
}

/** With its interval. */
export function figureOf(lane: LaneRecord, system: string, measure: string): Ratio {
  return ratioOfValues(valuesOf(lane, system, measure));
}

function valuesOf({ rounds }: LaneRecord, system: string, measure: string): number[] {
  return rounds.map(({ runs }) => runs[system]?.[measure]).filter((value) => typeof value === 'number');
}
