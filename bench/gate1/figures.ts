import type { LaneRecord } from '../runner/record.ts';
import { median } from '../runner/statistics.ts';

/** The median over the rounds that count. @returns NaN when the system was not measured */
export function medianOf(lane: LaneRecord, system: string, measure: string): number {
  return median(lane.rounds.map(({ runs }) => runs[system]?.[measure]).filter((value) => typeof value === 'number'));
}
