import { ringOf } from '../limits/ring.ts';
import type { SystemLimits } from '../mesh/limits.ts';
import { cellText, figureText, stateText } from '../runner/figures.ts';
import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import type { RanLanes } from '../runner/lanes.ts';
import { round } from '../runner/statistics.ts';
import { columns } from '../runner/table.ts';

const HEAD = [
  'sessions', 'one way', 'tok/s', 'theory', 'one8 tok/s', 'token p50 / p95 ms', 'theory', 'Jain', 'all under way', 'of a core',
  'rounds',
];

/** A line for each number of sessions and delay, every figure with its interval behind it; all of it from the records. */
export function tableOf({ lanes, skipped }: RanLanes): string[] {
  const grid = lanes.filter(({ key }) => key['question'] === undefined);
  const inOrder = grid.toSorted((a, b) => order(a) - order(b));
  return [
    ...grid.length === 0 ? [] : columns([HEAD, ...inOrder.map(gridRow)]),
    ...lanes.flatMap((lane) => ['', ...ofLane(lane)]),
    '',
    ...skipped.map(({ lane, why }) => `skipped: ${lane}: ${why}`),
  ];
}

const MANY = 1000;

/** By sessions, then by delay. */
function order({ key }: LaneRecord): number {
  return Number(key['sessions']) * MANY + Number(key['delay']);
}

function gridRow(lane: LaneRecord): string[] {
  const { key, limits } = lane;
  const ring = ringOf(limits);
  const share = (limits?.['mesh'] as SystemLimits | undefined)?.decode;
  return [
    String(key['sessions']), `${key['delay']} ms`, cellText(lane, 'mesh', 'decode'),
    ring === undefined ? '–' : `${round(ring.tokS, 3)}`, cellText(lane, 'one8', 'decode'),
    `${cellText(lane, 'mesh', 'step_p50_ms')} / ${cellText(lane, 'mesh', 'step_p95_ms')}`,
    ring === undefined ? '–' : `${round(ring.tokenMs, 3)}, groups of ${ring.group}`,
    cellText(lane, 'mesh', 'jain'), cellText(lane, 'mesh', 'together'),
    share === undefined ? '–' : `${(share.share * 100).toFixed(0)} % ${share.binds}`, stateText(lane),
  ];
}

function ofLane(lane: LaneRecord): string[] {
  const { key, systems, ratios, budget = [], notes = [] } = lane;
  const parts = key['question'] === 'long' ? systems : [];
  const turns = key['question'] === 'warm' ? systems : [];
  return [
    `${laneName(key)}: ${stateText(lane)}`,
    ...columns(Object.entries(ratios).map(([name, figure]) => [`  ${name}`, figureText(figure)])),
    ...parts.map((part) => `  ${part}: token p50 / p95 ${cellText(lane, part, 'step_p50_ms')} / ` +
      `${cellText(lane, part, 'step_p95_ms')} ms, first token of the long prompt ${cellText(lane, part, 'first_token_ms')} ms`),
    ...turns.map((turn) => `  ${turn}: first token ${cellText(lane, turn, 'first_token_ms')} ms, ` +
      `of the prompt held ${cellText(lane, turn, 'cached')}`),
    ...systems.includes('stock8') ? [`  stock8: decode ${cellText(lane, 'stock8', 'decode')} tok/s`] : [],
    ...columns(budget.map(({ part, ms }) => [`  ${part}`, `${round(ms, 3)} ms`])),
    ...notes.map((note) => `  ${note}`),
  ];
}
