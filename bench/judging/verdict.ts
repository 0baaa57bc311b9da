import { GATE1, THRESHOLDS, type Bound, type Threshold } from '../contract.ts';
import { valueOf, type Figure, type LaneRecord } from '../runner/lane-record.ts';
import type { BenchRecord } from '../runner/record.ts';
import { all, any, decide, type Answer, type Decision, type Finding } from './gate1-decision.ts';
import { newestLanes, united, usable } from './usable-records.ts';

export interface Verdict {
  readonly id: string;
  readonly verdict: Answer;
  /** The figures that it was judged by. */
  readonly value: string;
  readonly bound: string;
  readonly why: string;
}

/** Every threshold of the contract, judged by these records alone (oldest first). */
export function judge(given: readonly BenchRecord[]): Verdict[] {
  const records = usable(given);
  const gate1 = decisionOf(records);
  const verdicts = new Map<string, Verdict>();
  for (const threshold of THRESHOLDS) {
    const { id, sameAs, heldBy, bench } = threshold;
    const same = sameAs === undefined ? undefined : verdicts.get(sameAs);
    if (same !== undefined) {
      verdicts.set(id, { ...same, id, why: `as ${same.id}: ${same.why}` });
    } else if (heldBy !== undefined) {
      verdicts.set(id, { id, verdict: 'not judged', value: '', bound: '', why: `held by ${heldBy}` });
    } else {
      verdicts.set(id, bench === 'gate1' ? ofGate1(id, gate1) : ofBounds(threshold, records));
    }
  }
  return [...verdicts.values()];
}

/** Gate 1 by the newest undisturbed lane of each question; nothing without a record of it. */
export function decisionOf(given: readonly BenchRecord[]): Decision | undefined {
  const lanes = united(given).find(({ bench }) => bench === 'gate1')?.lanes ?? [];
  return lanes.length === 0 ? undefined : decide(lanes, GATE1);
}

function ofGate1(id: string, decision: Decision | undefined): Verdict {
  const found = decision?.findings.filter((one) => one.id === id || one.id.startsWith(`${id} `)) ?? [];
  const formatOf = (one: Finding): string => one.id.split(' ')[1] ?? '';
  const formats = [...new Set(found.map(formatOf))];
  // One format has to do it in every lane.
  const verdict = any(formats.map((format) =>
    all(found.filter((one) => formatOf(one) === format).map(({ answer }) => answer))));
  return {
    id, verdict: found.length === 0 ? 'not judged' : verdict, value: '', bound: '',
    why: found.length === 0 ? 'no record of gate1' : found.map(line).join('; '),
  };
}

function line({ id, answer, why }: Finding): string {
  const [, ...of] = id.split(' ');
  return of.length === 0 ? why : `${of.join(' ')} ${answer} (${why})`;
}

function ofBounds({ id, what, bench = '', bounds = [] }: Threshold, records: readonly BenchRecord[]): Verdict {
  const parts = bounds.map((bound) => {
    const found = find(records, { bench, bound });
    return { bound, found, said: found.length === 0 ? 'not judged' as const : all(found.map((one) => answer(bound, one))) };
  });
  const unknown = parts.filter(({ said }) => said === 'not judged').map(({ bound, found }) => {
    const fields = Object.entries(bound.lane ?? {}).map(([field, value]) => `${field} ${value}`);
    return `${[...fields, bound.figure].join(' ')} ${found.length === 0 ? 'not measured' : 'contended'}`;
  });
  const from = new Set(parts.flatMap(({ found }) => found.map(({ record }) => `${record.at.slice(0, 10)} ${record.commit}`)));
  return {
    id,
    verdict: all(parts.map(({ said }) => said)),
    value: parts.map(({ bound, found }) => worst(bound, found)).join(' / '),
    bound: each(bounds),
    why: [what, ...from.size === 0 ? [`no record of ${bench}`] : [...unknown, ...from]].join('; '),
  };
}

interface Found {
  readonly figure: Figure;
  readonly lane: LaneRecord;
  readonly record: BenchRecord;
}

/** Each lane that has the figure and these fields, from the newest run in which it was undisturbed. */
function find(records: readonly BenchRecord[], { bench, bound }: { bench: string; bound: Bound }): Found[] {
  const wanted = Object.entries(bound.lane ?? {});
  const taken = newestLanes(records.filter((record) => record.bench === bench), ({ key, ratios }) =>
    ratios[bound.figure] !== undefined && wanted.every(([field, value]) => key[field] === value));
  return taken.map(({ lane, record }) => ({ figure: lane.ratios[bound.figure] as Figure, lane, record }));
}

function answer({ atLeast = -Infinity, atMost = Infinity }: Bound, { figure, lane }: Found): Answer {
  const value = valueOf(figure);
  return lane.contended ? 'not judged' : value >= atLeast && value <= atMost ? 'holds' : 'fails';
}

/** The figure nearest to its bound, or furthest beyond it. */
function worst({ atLeast }: Bound, found: readonly Found[]): string {
  const [first, ...rest] = found.map(({ figure }) => figure);
  if (first === undefined) {
    return '–';
  }
  const figure = rest.reduce((a, b) => (atLeast === undefined) === (valueOf(a) < valueOf(b)) ? b : a, first);
  return typeof figure === 'number' ? String(figure) : `${figure.median} [${figure.low}, ${figure.high}]`;
}

function each(bounds: readonly Bound[]): string {
  const signs = bounds.map(({ atLeast }) => atLeast === undefined ? '≤' : '≥');
  const values = bounds.map(({ atLeast, atMost }) => atLeast ?? atMost);
  if (new Set(signs).size > 1) {
    return signs.map((sign, i) => `${sign} ${values[i]}`).join(' / ');
  }
  return `${signs[0]} ${new Set(values).size === 1 ? values[0] : values.join(' / ')}`;
}

/** One of them is enough: gate 1's decision tells whether it is there. */
const ALTERNATIVES: ReadonlySet<string> = new Set(['G1.speed', 'G1.fit']);

/** Whether nothing that was judged fails. */
export function holds(verdicts: readonly Verdict[], gate1: Decision | undefined): boolean {
  return gate1?.decision !== 'stop' && verdicts.every(({ id, verdict }) => verdict !== 'fails' || ALTERNATIVES.has(id));
}
