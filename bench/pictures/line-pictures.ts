import { DELAYS_MS, THRESHOLDS } from '../contract.ts';
import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import type { BenchRecord } from '../runner/record.ts';
import { median } from '../runner/statistics.ts';
import type { LinePicture } from './picture.ts';

/** Systems over the delay, and over sessions. */
export function linePictures(record: BenchRecord, subtitle: string): LinePicture[] {
  const decode = record.lanes.filter(({ key, rounds }) =>
    typeof key['delay'] === 'number' && key['question'] === undefined && rounds.length > 0 &&
    rounds.every(({ runs }) => Object.values(runs).every((run) => typeof run['step_p50_ms'] === 'number')));
  const single = decode.filter(({ key }) => key['sessions'] === 1);
  return [
    ...overDelay(single).length === 0 ? [] : [{
      subtitle, kind: 'lines' as const, name: `${record.bench}-token-over-delay`, title: `${record.bench}: time of a token, one session`,
      x: 'one-way delay, ms', y: 'ms', series: [...overDelay(single), ...law(single)],
    }],
    ...ratiosOverDelay(single).length === 0 ? [] : [{
      subtitle, kind: 'lines' as const, name: `${record.bench}-decode-over-delay`,
      title: `${record.bench}: decode speed of ours over each opponent, one session`,
      x: 'one-way delay, ms', y: 'ratio', series: [...ratiosOverDelay(single), ...demanded()],
    }],
    ...overSessions(decode).length === 0 ? [] : [{
      subtitle, kind: 'lines' as const, name: `${record.bench}-speed-over-sessions`,
      title: `${record.bench}: tokens per second of all sessions`,
      x: 'sessions', y: 'tokens/s', series: overSessions(decode),
    }],
  ];
}

type Series = LinePicture['series'];

function middle(lane: LaneRecord, system: string, measure: string): number {
  return median(lane.rounds.map(({ runs }) => Number(runs[system]?.[measure])));
}

/** A lane of decoding has more than one delay beside it, or it is no line. */
function byDelay(lanes: readonly LaneRecord[]): LaneRecord[] {
  const sorted = lanes.toSorted((a, b) => Number(a.key['delay']) - Number(b.key['delay']));
  const prompts = sorted.map(({ key }) => laneName({ ...key, delay: 0 }));
  const most = prompts.toSorted((a, b) => prompts.filter((one) => one === b).length - prompts.filter((one) => one === a).length)[0];
  const line = sorted.filter((_, i) => prompts[i] === most);
  return line.length > 1 ? line : [];
}

function overDelay(lanes: readonly LaneRecord[]): Series {
  const line = byDelay(lanes);
  return systemsOf(line).map((name) => ({
    name,
    points: line.filter(({ systems }) => systems.includes(name))
      .map((lane) => [Number(lane.key['delay']), middle(lane, name, 'step_p50_ms')] as const),
  }));
}

/** What a pipeline of two can do at best: one process's time and two delays. */
function law(lanes: readonly LaneRecord[]): Series {
  const points = byDelay(lanes).filter(({ systems }) => systems.includes('local')).map((lane) => {
    const delay = Number(lane.key['delay']);
    return [delay, middle(lane, 'local', 'step_p50_ms') + 2 * delay] as const;
  });
  return points.length === 0 ? [] : [{ name: 'local + 2 D', points, dashed: true }];
}

function ratiosOverDelay(lanes: readonly LaneRecord[]): Series {
  const line = byDelay(lanes);
  const names = new Set(line.flatMap(({ ratios }) => Object.keys(ratios)).filter((name) => name.startsWith('decode/')));
  return [...names].map((name) => ({
    name: name.slice('decode/'.length).replace('_over_', ' ÷ '),
    points: line.flatMap(({ key, ratios }) => {
      const figure = ratios[name];
      return figure === undefined ? [] : [[Number(key['delay']), figure] as const];
    }),
  }));
}

function demanded(): Series {
  return ['R2.rpc1l', 'R2.rpc2'].map((id) => ({
    name: id, dashed: true,
    points: (THRESHOLDS.find((one) => one.id === id)?.bounds ?? []).map(({ atLeast = 0 }, i) => [DELAYS_MS[i] ?? 0, atLeast] as const),
  }));
}

function overSessions(lanes: readonly LaneRecord[]): Series {
  const delays = [...new Set(lanes.map(({ key }) => Number(key['delay'])))].toSorted((a, b) => a - b);
  return delays.flatMap((delay) => ['local', 'ours'].flatMap((name) => {
    const points = lanes.filter(({ key, systems }) => key['delay'] === delay && systems.includes(name))
      .map((lane) => [Number(lane.key['sessions']), middle(lane, name, 'decode')] as const)
      .toSorted(([a], [b]) => a - b);
    // One process has no delay in it: once is enough.
    return points.length < 2 || (name === 'local' && delay !== delays[0]) ? []
      : [{ name: name === 'local' ? 'local' : `ours, ${delay} ms`, points, dashed: name === 'local' }];
  }));
}

function systemsOf(lanes: readonly LaneRecord[]): string[] {
  return [...new Set(lanes.flatMap(({ systems }) => systems))];
}
