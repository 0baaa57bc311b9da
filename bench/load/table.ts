import { cellText, figureText, stateText } from '../runner/figures.ts';
import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import type { RanLanes } from '../runner/lanes.ts';
import { columns } from '../runner/table.ts';

/** Every lane: its figures with their intervals, then what each of its parts measured; all of it from the records. */
export function tableOf({ lanes, skipped }: RanLanes): string[] {
  return [
    ...lanes.flatMap((lane) => [...ofLane(lane), '']),
    ...skipped.map(({ lane, why }) => `skipped: ${lane}: ${why}`),
  ];
}

function ofLane(lane: LaneRecord): string[] {
  const { key, systems, ratios, notes = [] } = lane;
  return [
    `${laneName(key)}: ${stateText(lane)}`,
    ...columns(Object.entries(ratios).map(([name, figure]) => [`  ${name}`, figureText(figure)])),
    ...systems.map((system) => `  ${system}: ${measured(lane, system).join(', ')}`),
    ...notes.map((note) => `  ${note}`),
  ];
}

/** Medians of what is a number. */
function measured(lane: LaneRecord, system: string): string[] {
  const names = new Set(lane.rounds.flatMap(({ runs }) =>
    Object.entries(runs[system] ?? {}).filter(([, value]) => typeof value === 'number').map(([name]) => name)));
  return [...names].map((name) => `${name} ${cellText(lane, system, name)}`);
}
