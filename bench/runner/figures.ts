import { valueOf, type Figure, type LaneRecord } from './lane-record.ts';
import { ratioOfValues, type Measures, type Ratio } from './rounds.ts';
import { median, round } from './statistics.ts';

type Measured = Pick<LaneRecord, 'rounds'>;

/** The median over the rounds that count. @returns NaN when the system was not measured */
export function medianOf(lane: Measured, system: string, measure: string): number {
  return median(valuesOf(lane, system, measure));
}

/** With its interval. */
export function figureOf(lane: Measured, system: string, measure: string): Ratio {
  return ratioOfValues(valuesOf(lane, system, measure));
}

function valuesOf({ rounds }: Measured, system: string, measure: string): number[] {
  return rounds.map(({ runs }) => runs[system]?.[measure]).filter((value) => typeof value === 'number');
}

/** A figure of one run. @returns NaN when it is missing */
export function number(measures: Measures | undefined, name: string): number {
  const value = measures?.[name];
  return typeof value === 'number' ? value : Number.NaN;
}

/** For people: with its interval and the number of pairs. */
export function figureText(figure: Figure): string {
  return typeof figure === 'number' ? String(round(figure))
    : `${valueOf(figure)}  [${figure.low}, ${figure.high}], n = ${figure.n}`;
}

/** For people: a median, or a dash. */
export function cellText(lane: Measured, system: string, measure: string): string {
  const value = medianOf(lane, system, measure);
  return Number.isNaN(value) ? '–' : String(round(value, 3));
}

/** For people: how many rounds count, and whether anything is judged by them. */
export function stateText(
  { rounds, discarded, long, contended }: Pick<LaneRecord, 'rounds' | 'discarded' | 'long' | 'contended'>,
): string {
  return [
    `${rounds.length} rounds`, `${discarded.length} discarded`, ...long ? ['long'] : [],
    ...contended ? ['CONTENDED: judged by nothing'] : [],
  ].join(', ');
}
