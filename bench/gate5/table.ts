import type { SystemLimits } from '../mesh/limits.ts';
import { cellText, figureText, medianOf, stateText } from '../runner/figures.ts';
import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import type { RanLanes } from '../runner/lanes.ts';
import { round } from '../runner/statistics.ts';
import { columns } from '../runner/table.ts';

const SPEED = ['decode', 'prefill', 'memory_mib', 'cpu_ms_per_token'];
const STEPS = ['step_p10_ms', 'step_p50_ms', 'step_p95_ms'];
const WIRE = [
  'line_bytes', 'line_packets', 'seam_bytes', 'seam_messages', 'seam_messages_per_microbatch', 'loop_bytes', 'loop_messages',
];

/** Ratios first, what they were made of behind them; all of it from the lanes' records. */
export function tableOf({ lanes, skipped }: RanLanes): string[] {
  return [
    ...lanes.flatMap((lane) => ['', ...ofLane(lane)]),
    '',
    ...delaysPerToken(lanes),
    ...skipped.map(({ lane, why }) => `skipped: ${lane}: ${why}`),
  ];
}

/** One-way delays that a token of one session takes: the slope of its median time over the delay, by least squares. */
export function slopes(lanes: readonly LaneRecord[]): Record<string, number> {
  // Lanes of decoding alone have the law among their figures.
  const single = lanes.filter(({ ratios }) => ratios['token/ours_over_law'] !== undefined);
  const names = [...new Set(single.flatMap(({ systems }) => systems))];
  const delays = new Set(single.map(({ key }) => key['delay']));
  return delays.size < 2 ? {} : Object.fromEntries(names.map((name) => {
    const points = single.map((lane) => [Number(lane.key['delay']), medianOf(lane, name, 'step_p50_ms')] as const);
    return [name, round(slope(points), 3)];
  }));
}

function slope(points: readonly (readonly [x: number, y: number])[]): number {
  const mean = (of: (point: readonly [number, number]) => number): number =>
    points.reduce((sum, point) => sum + of(point), 0) / points.length;
  const x = mean(([a]) => a);
  const y = mean(([, b]) => b);
  return mean(([a, b]) => (a - x) * (b - y)) / mean(([a]) => (a - x) ** 2);
}

function delaysPerToken(lanes: readonly LaneRecord[]): string[] {
  const all = Object.entries(slopes(lanes));
  const texts = all.map(([name, value]) => `${name} ${value}`);
  return all.length === 0 ? [] : [`one-way delays per token: ${texts.join(', ')}`];
}

function ofLane(lane: LaneRecord): string[] {
  const { key, rounds, ratios, budget = [], notes = [] } = lane;
  return [
    rounds.length === 0 ? laneName(key) : `${laneName(key)}: ${stateText(lane)}`,
    ...columns(Object.entries(ratios).map(([name, figure]) => [`  ${name}`, figureText(figure)])),
    ...rounds.length === 0 ? [] : columns(key['question'] === 'wire' ? wireRows(lane) : speedRows(lane)),
    ...columns(budget.map(({ part, ms }) => [`  ${part}`, `${round(ms, 3)} ms`])),
    ...notes.map((note) => `  ${note}`),
  ];
}

function speedRows(lane: LaneRecord): string[][] {
  const share = (system: string, of: keyof SystemLimits): string => {
    const limit = (lane.limits?.[system] as SystemLimits | undefined)?.[of];
    return limit === undefined ? '–' : `${(limit.share * 100).toFixed(0)} % ${limit.binds}`;
  };
  return [
    [
      '  system', 'decode tok/s', 'prefill tok/s', 'MiB in all', 'CPU ms/token', 'token p10/p50/p95 ms', 'decode of a core',
      'prefill of a core',
    ],
    ...lane.systems.map((system) => [
      `  ${system}`, ...SPEED.map((name) => cellText(lane, system, name)),
      STEPS.map((name) => cellText(lane, system, name)).join(' / '),
      share(system, 'decode'), share(system, 'prefill'),
    ]),
  ];
}

function wireRows(lane: LaneRecord): string[][] {
  return [
    ['  per token', ...WIRE.map((name) => name.replaceAll('_', ' '))],
    ...lane.systems.map((system) => [`  ${system}`, ...WIRE.map((name) => cellText(lane, system, name))]),
  ];
}
