import { REGRESSION } from '../contract.ts';
import { laneName, valueOf, type Figure } from '../runner/lane-record.ts';
import { isSmoke, type BenchRecord } from '../runner/record.ts';
import { columns } from '../runner/table.ts';
import { differences } from './differences.ts';
import type { Answer } from './gate1-decision.ts';

export interface Change {
  readonly name: string;
  readonly old: number;
  readonly now: number;
  readonly verdict: Answer;
}

export interface Comparison {
  readonly changes: readonly Change[];
  /** Something was compared, and none of it fails. */
  readonly holds: boolean;
  /** For people: a line a ratio, then what makes the comparison doubtful. */
  readonly lines: readonly string[];
}

/** Of these less is better, by their measure or their own name; of every other ratio more. */
const COST = new RegExp([
  '(^|/)(memory|bytes|messages|logits|wire|token|kl|difference)/[^/]+$', '/one_process_finished$', '_added_ms$', '_over_tcp$',
  '^delay_law_', '^decoders_p95_', '^long_first_token_', '^second_turn_', '^stall_rss_', '^disconnect_',
  '^overload_(untyped|rss|fds|left)',
].join('|'));

/** R10: this run against a recorded one, ratio by ratio. */
export function compare(old: BenchRecord, now: BenchRecord): Comparison {
  const disturbed = new Set([old, now].flatMap((record) => isSmoke(record) ? Object.keys(record.ratios) : disturbedNames(record)));
  const changes = Object.entries(now.ratios).flatMap(([name, figure]): Change[] => {
    const before = old.ratios[name];
    return before === undefined ? [] : [{
      name, old: valueOf(before), now: valueOf(figure),
      verdict: disturbed.has(name) ? 'not judged' : regressed(name, { before: valueOf(before), figure }) ? 'fails' : 'holds',
    }];
  });
  const missing = Object.keys(old.ratios).filter((name) => !(name in now.ratios));
  return {
    changes, holds: changes.length > 0 && changes.every(({ verdict }) => verdict !== 'fails'),
    lines: [
      `compared with ${old.at} ${old.commit}, R10:`,
      ...columns([
        ['  ratio', 'old', 'new', 'change', 'verdict'],
        ...changes.map((one) => [`  ${one.name}`, String(one.old), String(one.now), percent(one), one.verdict]),
      ]),
      ...changes.length > 0 ? [] : ['  nothing to compare: no ratio is in both'],
      ...missing.length > 0 ? [`  not measured now: ${missing.join(', ')}`] : [],
      ...differences(old, now).map((what) => `  warning: another ${what}; ratios of different machines or engines say little`),
    ],
  };
}

/** An interval that lies wholly on the wrong side; a figure without one is its own. A cost that is a growth may be below zero. */
function regressed(name: string, { before, figure }: { before: number; figure: Figure }): boolean {
  const { low, high } = typeof figure === 'number' ? { low: figure, high: figure } : figure;
  return COST.test(name) ? low > before + Math.abs(before) * (1 / REGRESSION - 1) : high < before * REGRESSION;
}

function disturbedNames({ lanes }: BenchRecord): string[] {
  return lanes.filter(({ contended }) => contended).flatMap(({ key, ratios }) =>
    Object.keys(ratios).flatMap((name) => [name, `${laneName(key)}/${name}`]));
}

function percent({ old, now }: Change): string {
  const change = (now / old - 1) * 100;
  return Number.isFinite(change) ? `${change > 0 ? '+' : ''}${change.toFixed(1)} %` : '–';
}
