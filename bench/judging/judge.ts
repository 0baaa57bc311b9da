import { globSync } from 'node:fs';
import path from 'node:path';
import { THRESHOLDS } from '../contract.ts';
import { readRecords, type BenchRecord } from '../runner/record.ts';
import { columns } from '../runner/table.ts';
import { decisionOf, holds, judge, type Verdict } from './verdict.ts';

const RESULTS = path.join(import.meta.dirname, '..', 'results');

/** Records of these files, or of all committed results, oldest first. */
export function recordsOf(files: readonly string[]): BenchRecord[] {
  const all = files.length > 0 ? files : globSync('**/*.jsonl', { cwd: RESULTS }).map((file) => path.join(RESULTS, file));
  return all.flatMap(readRecords).toSorted((a, b) => a.at.localeCompare(b.at));
}

export interface Judgement {
  readonly verdicts: readonly Verdict[];
  /** Nothing that was judged fails. */
  readonly holds: boolean;
  /** For people. */
  readonly lines: readonly string[];
}

/** What the contract says of these records. */
export function judgement(records: readonly BenchRecord[]): Judgement {
  const verdicts = judge(records);
  const gate1 = decisionOf(records);
  return {
    verdicts, holds: holds(verdicts, gate1),
    lines: [...table(verdicts), `gate 1: ${gate1 === undefined ? 'not judged: no record of gate1' : `${gate1.decision}: ${gate1.why}`}`],
  };
}

/** What the contract says of one run: the thresholds of its benchmark alone. */
export function judgementOfRun(record: BenchRecord): Judgement {
  const own = new Set(THRESHOLDS.filter(({ bench }) => bench === record.bench).map(({ id }) => id));
  const verdicts = judge([record]).filter(({ id }) => own.has(id));
  return { verdicts, holds: holds(verdicts, decisionOf([record])), lines: table(verdicts) };
}

function table(verdicts: readonly Verdict[]): string[] {
  return columns([
    ['threshold', 'verdict', 'value', 'bound', 'why'],
    ...verdicts.map(({ id, verdict, value, bound, why }) => [id, verdict, value, bound, why]),
  ]);
}
