import { GATE1, THRESHOLDS } from '../contract.ts';
import type { Figure, LaneKey, LaneRecord } from '../runner/lane-record.ts';
import type { BenchRecord } from '../runner/record.ts';
import type { BarPicture } from './picture.ts';

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

/** Every ratio of a record beside its bounds, a picture for each measure. */
export function barPictures(record: BenchRecord, subtitle: string): BarPicture[] {
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
      subtitle, y: unitOf(measure), logarithmic: LOGARITHMIC.has(measure), groups,
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
