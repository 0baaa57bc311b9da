import type { LaneRecord } from './lane-record.ts';
import { ratioOfValues, type Measures, type Ratio } from './rounds.ts';
import { median } from './statistics.ts';

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

/** A figure of one run. @returns NaN when it is missing */
export function number(measures: Measures | undefined, name: string): number {
  const value = measures?.[name];
  return typeof value === 'number' ? value : Number.NaN;
}
