import { DELAYS_MS, GATE1, THRESHOLDS } from '../contract.ts';
import { gate1Pictures } from '../gate1/pictures.ts';
import { laneName, type Figure, type LaneKey, type LaneRecord } from './lane-record.ts';
import type { BarPicture, LinePicture, Picture } from './picture.ts';
import type { BenchRecord } from './record.ts';
import { median } from './statistics.ts';

/** What a record is drawn as: its ratios as bars beside their bounds, and figures over delay and sessions as lines. */
export function picturesOf(record: BenchRecord): Picture[] {
  return [...barPictures(record), ...linePictures(record), ...record.bench === 'gate1' ? gate1Pictures(record, subtitle(record)) : []];
}

/** A ratio by its name: what is measured, of which system over which. */
interface Named {
  readonly measure: string;
  readonly series: string;
  /** Where the figure's name and not its lane says which group it belongs to. */
  readonly group?: string;
}

const WORDS: Readonly<Record<string, string>> = {
  decode: 'decode speed', prefill: 'prefill speed', memory: 'peak memory', kl: 'mean KL, nats', added: 'ms above raw TCP',
  over_tcp: 'times raw TCP', token: 'token time', bytes: 'payload over its bound', wire: 'bytes on the wire',
};
/** Of one value only; a lane's worth of bars would say nothing. */
const LOGARITHMIC = new Set(['kl', 'wire']);
/** Bars beside each other that can be read. */
const MOST_BARS = 40;

function named(name: string): Named | undefined {
  const slashed = /^(?<measure>\w+)\/(?<of>\w+?)(?:_over_(?<over>\w+))?$/.exec(name)?.groups;
  if (slashed !== undefined) {
    const { measure = '', of = '', over } = slashed;
    return { measure, series: over === undefined ? of : `${of} ÷ ${over}` };
  }
  const seam = /^seam_(?<size>\d+)k_(?<what>added|over_tcp)(?:_ms)?$/.exec(name)?.groups;
  if (seam !== undefined) {
    return { measure: seam['what'] ?? '', series: 'seam', group: `${seam['size']} KiB` };
  }
  const split = /(?<measure>decode|prefill)_(?<of>\w+)_over_(?<over>\w+)$/.exec(name)?.groups;
  return split === undefined ? undefined
    : { measure: split['measure'] ?? '', series: `${split['of']} ÷ ${split['over']}`.replaceAll('_', ' ') };
}

function barPictures(record: BenchRecord): BarPicture[] {
  const same = sameOf(record.lanes);
  const found = record.lanes.flatMap((lane) => Object.entries(lane.ratios).flatMap(([name, figure]) => {
    const parts = named(name);
    return parts === undefined ? [] : [{ ...parts, name, figure, key: lane.key, group: parts.group ?? groupOf(lane, same) }];
  }));
  return [...new Set(found.map(({ measure }) => measure))].flatMap((measure): BarPicture[] => {
    const own = found.filter((one) => one.measure === measure);
    const groups = [...new Set(own.map(({ group }) => group))];
    const names = [...new Set(own.map(({ series }) => series))];
    return groups.length * names.length > MOST_BARS ? [] : [{
      kind: 'bars', name: `${record.bench}-${measure}`,
      title: [`${record.bench}: ${WORDS[measure] ?? measure}`, ...same.map(fieldOf)].join(', '),
      subtitle: subtitle(record), y: unitOf(measure), logarithmic: LOGARITHMIC.has(measure), groups,
      series: names.map((series) => ({
        name: series,
        values: groups.map((group): Figure | undefined => own.find((one) => one.group === group && one.series === series)?.figure),
      })),
      bounds: record.bench === 'gate1' ? gate1Bounds(measure) : boundsOf(record.bench, own),
    }];
  });
}

function unitOf(measure: string): string {
  return measure === 'kl' ? 'mean KL, nats' : measure === 'added' ? 'ms' : 'ratio';
}

type Field = readonly [name: string, value: string | number];

/** What all lanes have in common stands in the title; a single lane's fields name its group. */
function sameOf(lanes: readonly LaneRecord[]): Field[] {
  const [first, ...rest] = lanes.map(({ key }) => key);
  return rest.length === 0 ? [] : Object.entries(first ?? {}).filter(([field, value]) => rest.every((key) => key[field] === value));
}

function groupOf({ key, contended }: LaneRecord, same: readonly Field[]): string {
  const fields = Object.entries(key).filter(([field]) => !same.some(([name]) => name === field)).map(fieldOf);
  return [...fields, ...contended ? ['(disturbed)'] : []].join(' / ');
}

function fieldOf([name, value]: Field): string {
  return typeof value === 'number' ? `${name} ${value}` : value;
}

function subtitle({ at, commit, context: { machine, threads } }: BenchRecord): string {
  return `${at.slice(0, 10)}, ${commit}; ${machine.cpu}, ${machine.cores} cores; ${threads} thread${threads === 1 ? '' : 's'} a process; ` +
    'medians with 95 % intervals';
}

/** Bounds that are one number for every lane that has the figure. */
function boundsOf(bench: string, drawn: readonly { readonly name: string; readonly key: LaneKey }[]): BarPicture['bounds'] {
  return together(THRESHOLDS.filter((one) => one.bench === bench).flatMap(({ id, bounds = [] }) => {
    const own = bounds.filter(({ figure }) => drawn.some(({ name }) => name === figure));
    const ofAll = drawn.filter(({ name }) => own.some(({ figure }) => figure === name)).every(({ key }) =>
      own.some(({ lane = {} }) => Object.entries(lane).every(([field, value]) => key[field] === value)));
    const values = new Set(own.map(({ atLeast, atMost }) => atLeast ?? atMost ?? 0));
    return ofAll && values.size === 1 ? [...values].map((value) => ({ id, value })) : [];
  }));
}

function gate1Bounds(measure: string): BarPicture['bounds'] {
  const { speed, fit, quality } = GATE1;
  const bounds: Readonly<Record<string, { id: string; value: number }[]>> = {
    decode: [{ id: 'G1.speed', value: speed.decode }, { id: 'G1.fit', value: fit.decode }],
    prefill: [{ id: 'G1.speed', value: speed.prefill }],
    memory: [{ id: 'G1.fit', value: fit.memory }],
    kl: [{ id: 'f16', value: quality.f16 }, { id: 'q8_0', value: quality.q8_0 }],
  };
  return together(bounds[measure] ?? []);
}

/** Two bounds at one height share a line. */
function together(bounds: readonly { id: string; value: number }[]): BarPicture['bounds'] {
  return [...new Set(bounds.map(({ value }) => value))].map((value) => ({
    value, name: `${bounds.filter((one) => one.value === value).map(({ id }) => id).join(', ')}: ${value}`,
  }));
}

/** Systems over the delay, and over sessions. */
function linePictures(record: BenchRecord): LinePicture[] {
  const decode = record.lanes.filter(({ key, rounds }) =>
    typeof key['delay'] === 'number' && key['question'] === undefined && rounds.length > 0 &&
    rounds.every(({ runs }) => Object.values(runs).every((run) => typeof run['step_p50_ms'] === 'number')));
  const single = decode.filter(({ key }) => key['sessions'] === 1);
  const shared = { subtitle: subtitle(record) };
  return [
    ...overDelay(single).length === 0 ? [] : [{
      ...shared, kind: 'lines' as const, name: `${record.bench}-token-over-delay`, title: `${record.bench}: time of a token, one session`,
      x: 'one-way delay, ms', y: 'ms', series: [...overDelay(single), ...law(single)],
    }],
    ...ratiosOverDelay(single).length === 0 ? [] : [{
      ...shared, kind: 'lines' as const, name: `${record.bench}-decode-over-delay`,
      title: `${record.bench}: decode speed of ours over each opponent, one session`,
      x: 'one-way delay, ms', y: 'ratio', series: [...ratiosOverDelay(single), ...demanded()],
    }],
    ...overSessions(decode).length === 0 ? [] : [{
      ...shared, kind: 'lines' as const, name: `${record.bench}-speed-over-sessions`,
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
