import { GATE1 } from '../contract.ts';
import { decide, type Decision } from '../judging/gate1-decision.ts';
import { cellText, figureText, stateText } from '../runner/figures.ts';
import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import type { RanLanes } from '../runner/lanes.ts';
import { round } from '../runner/statistics.ts';
import { columns } from '../runner/table.ts';
import type { SystemLimits } from './limits.ts';

export interface TableParts extends RanLanes {
  readonly smoke: boolean;
}

/** Ratios first, what they were made of beside them, the decision last; all of it from the lanes' records. */
export function tableOf({ lanes, skipped, smoke }: TableParts): string[] {
  return [
    ...lanes.flatMap((lane) => ['', ...(lane.rounds.length === 0 ? ofQuestion(lane) : ofLane(lane))]),
    '',
    ...skipped.map(({ lane, why }) => `skipped: ${lane}: ${why}`),
    ...(smoke ? ['gate 1: not judged: a smoke run means nothing'] : decisionLines(decide(lanes, GATE1))),
  ];
}

function decisionLines({ decision, why, findings }: Decision): string[] {
  return [...columns(findings.map(({ id, answer, why }) => [id, answer, why])), `gate 1: ${decision}: ${why}`];
}

function ofLane(lane: LaneRecord): string[] {
  const { key, systems, ratios } = lane;
  const cell = (system: string, measure: string): string => cellText(lane, system, measure);
  const share = (system: string, of: keyof SystemLimits): string => {
    const limit = (lane.limits?.[system] as SystemLimits | undefined)?.[of];
    return limit === undefined ? '–' : `${(limit.share * 100).toFixed(0)} % ${limit.binds}`;
  };
  return [
    `${laneName(key)}: ${stateText(lane)}`,
    ...columns([
      [
        '  system',
        'decode tok/s',
        'prefill tok/s',
        'peak MiB',
        'start ms',
        'load ms',
        'step p10/p50/p95 ms',
        'CPU ms/token',
        'decode of limit',
        'prefill of limit',
      ],
      ...systems.map((system) => [
        `  ${system}`,
        ...['decode', 'prefill', 'memory_mib', 'start_ms', 'load_ms'].map((measure) => cell(system, measure)),
        ['step_p10_ms', 'step_p50_ms', 'step_p95_ms'].map((measure) => cell(system, measure)).join(' / '),
        cell(system, 'cpu_ms_per_token'),
        share(system, 'decode'),
        share(system, 'prefill'),
      ]),
    ]),
    ...columns(Object.entries(ratios).map(([name, figure]) => [`  ${name}`, figureText(figure)])),
    ...columns((lane.budget ?? []).map(({ part, ms }) => [`  ${part}`, `${round(ms, 3)} ms`])),
    ...(lane.notes ?? []).map((note) => `  ${note}`),
  ];
}

function ofQuestion({ key, ratios, notes = [] }: LaneRecord): string[] {
  return [
    laneName(key),
    ...columns(Object.entries(ratios).map(([name, figure]) => [`  ${name}`, figureText(figure)])),
    ...notes.map((note) => `  ${note}`),
  ];
}
