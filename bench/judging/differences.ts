import type { BenchRecord } from '../runner/record.ts';

/** What is a ratio on one machine is another one on the next: these have to be the same. */
const SAME_MACHINE = ['cpu', 'cores', 'kernel', 'congestion'] as const;

/** In what else than the code two runs differ, for people. */
export function differences(old: BenchRecord, now: BenchRecord): string[] {
  const machine = SAME_MACHINE.filter((field) => old.context.machine[field] !== now.context.machine[field])
    .map((field) => `${field} (${old.context.machine[field]}, now ${now.context.machine[field]})`);
  return [...machine, ...old.context.engine === now.context.engine ? [] : [`engine (${old.context.engine}, now ${now.context.engine})`]];
}
