import { THRESHOLDS } from '../contract.ts';
import { ringOf, type RingLimit } from '../limits/ring.ts';
import { figureOf, medianOf } from '../runner/figures.ts';
import { valueOf, type Figure, type LaneRecord } from '../runner/lane-record.ts';
import type { BenchRecord } from '../runner/record.ts';
import { round } from '../runner/statistics.ts';
import type { BarPicture, LinePicture, Picture } from './picture.ts';

type Series = LinePicture['series'][number];
type Of = (lane: LaneRecord) => Figure | undefined;

/** Speed and token times over sessions, a line for each delay, with theory; and how what is judged stands to its bound. */
export function concurrencyPictures(record: BenchRecord, subtitle: string): Picture[] {
  const grid = record.lanes.filter(({ key, rounds }) => key['question'] === undefined && rounds.length > 0);
  const lines = (what: Pick<LinePicture, 'title' | 'y'> & { name: string }, series: readonly Series[]): LinePicture[] =>
    series.length === 0 ? [] : [{
      kind: 'lines', subtitle, x: 'sessions', y: what.y, series,
      name: `concurrency-${what.name}`, title: `concurrency: ${what.title}`,
    }];
  return [
    ...lines({ name: 'speed', title: 'tokens per second of all sessions', y: 'tokens/s' }, [
      ...overSessions(grid, { of: measured('decode') }),
      ...overSessions(grid, { of: theory(({ tokS }) => tokS), suffix: ', theory' }),
      ...oneProcess(grid),
    ]),
    ...lines({ name: 'speed-over-one-process', title: 'speed of all sessions over one process with eight', y: 'ratio' },
      overSessions(grid, { of: ({ key, ratios }) => ratios[`mesh${key['sessions']}_over_one8_${key['delay']}ms`] })),
    ...lines({ name: 'token-p50', title: 'time between tokens, median', y: 'ms' }, [
      ...overSessions(grid, { of: measured('step_p50_ms') }),
      ...overSessions(grid, { of: theory(({ tokenMs }) => tokenMs), suffix: ', theory' }),
    ]),
    ...lines({ name: 'token-p95', title: 'time between tokens, 95 % are shorter', y: 'ms' },
      overSessions(grid, { of: measured('step_p95_ms') })),
    ...judged(record, subtitle),
  ];
}

function measured(measure: string): Of {
  return (lane) => Number.isNaN(medianOf(lane, 'mesh', measure)) ? undefined : figureOf(lane, 'mesh', measure);
}

function theory(of: (ring: RingLimit) => number): Of {
  return ({ limits }) => {
    const ring = ringOf(limits);
    return ring === undefined ? undefined : of(ring);
  };
}

interface LinesOf {
  readonly of: Of;
  /** Behind the delay in the name of a line that is expected and not measured; it has the colour of the measured one. */
  readonly suffix?: string;
}

/** A line for each delay that has two points. */
function overSessions(grid: readonly LaneRecord[], { of, suffix }: LinesOf): Series[] {
  const delays = [...new Set(grid.map(({ key }) => Number(key['delay'])))].toSorted((a, b) => a - b);
  return delays.flatMap((delay): Series[] => {
    const points = grid.filter(({ key }) => key['delay'] === delay)
      .toSorted((a, b) => sessionsOf(a) - sessionsOf(b))
      .flatMap((lane) => {
        const figure = of(lane);
        return figure === undefined ? [] : [[sessionsOf(lane), figure] as const];
      });
    const name = `${delay} ms`;
    const look = suffix === undefined ? {} : { dashed: true, like: name };
    return points.length < 2 ? [] : [{ name: name + (suffix ?? ''), points, ...look }];
  });
}

/** The same in every lane but for noise, so its line is the middle of all of them. */
function oneProcess(grid: readonly LaneRecord[]): Series[] {
  const all = grid.flatMap(({ rounds }) => rounds);
  const decode = medianOf({ rounds: all }, 'one8', 'decode');
  const sessions = [...new Set(grid.map(sessionsOf))].toSorted((a, b) => a - b);
  return sessions.length < 2 || Number.isNaN(decode) ? [] : [{
    name: 'one process, 8', dashed: true, points: sessions.map((n) => [n, decode] as const),
  }];
}

/** Each figure over its bound; where less is better, the bound over the figure: 1 or more holds. */
function judged(record: BenchRecord, subtitle: string): BarPicture[] {
  const bars = THRESHOLDS.filter(({ bench }) => bench === record.bench).flatMap(({ id, bounds = [] }) =>
    bounds.flatMap(({ figure: name, lane: wanted = {}, atLeast, atMost }) => {
      const lane = record.lanes.find(({ key, ratios }) =>
        ratios[name] !== undefined && Object.entries(wanted).every(([field, value]) => key[field] === value));
      const figure = lane?.ratios[name];
      const value = figure === undefined ? undefined
        : atLeast === undefined ? map(figure, (of) => (atMost ?? Number.NaN) / of) : map(figure, (of) => of / atLeast);
      const sign = atLeast === undefined ? `≤ ${atMost}` : `≥ ${atLeast}`;
      const where = bounds.length > 1 ? [`${wanted['sessions'] ?? ''} at ${wanted['delay']} ms`.trim()] : [];
      const group = [id, ...where, sign, ...lane?.contended === true ? ['(disturbed)'] : []].join(' / ');
      return value === undefined ? [] : [{ group, value }];
    }));
  return bars.length === 0 ? [] : [{
    kind: 'bars', name: 'concurrency-judged', title: 'concurrency: what is judged, over what is demanded', subtitle, y: 'ratio',
    groups: bars.map(({ group }) => group), series: [{ name: 'measured', values: bars.map(({ value }) => value) }],
    bounds: [{ name: 'demanded', value: 1 }],
  }];
}

function map(figure: Figure, of: (value: number) => number): Figure {
  if (typeof figure === 'number') {
    return round(of(figure));
  }
  const [low = Number.NaN, high = Number.NaN] = [of(figure.low), of(figure.high)].toSorted((a, b) => a - b);
  return { median: round(of(valueOf(figure))), low: round(low), high: round(high), n: figure.n };
}

function sessionsOf({ key }: LaneRecord): number {
  return Number(key['sessions']);
}
