import { globSync } from 'node:fs';
import path from 'node:path';
import { readRecords, type BenchRecord } from '../runner/record.ts';
import { columns } from '../runner/table.ts';
import { decisionOf, judge, type Verdict } from './verdict.ts';

const RESULTS = path.join(import.meta.dirname, '..', 'results');

/** Records of these files, or of all committed results, oldest first. */
export function recordsOf(files: readonly string[]): BenchRecord[] {
  const all = files.length > 0 ? files : globSync('**/*.jsonl', { cwd: RESULTS }).map((file) => path.join(RESULTS, file));
  return all.flatMap(readRecords).toSorted((a, b) => a.at.localeCompare(b.at));
}

/** What the contract says of these records, for people. */
export function judgement(records: readonly BenchRecord[]): { verdicts: Verdict[]; lines: string[] } {
  const verdicts = judge(records);
  const gate1 = decisionOf(records);
  return {
    verdicts,
    lines: [
      ...columns([
        ['threshold', 'verdict', 'value', 'bound', 'why'],
        ...verdicts.map(({ id, verdict, value, bound, why }) => [id, verdict, value, bound, why]),
      ]),
      `gate 1: ${gate1 === undefined ? 'not judged: no record of gate1' : `${gate1.decision}: ${gate1.why}`}`,
    ],
  };
}
