import { readFile } from 'node:fs/promises';

/** Of Linux on every processor that we run on. */
const TICKS_PER_SECOND = 100;
/** Places of user and system time behind the name, which may hold anything: proc(5), `/proc/[pid]/stat`. */
const USER = 11;
const SYSTEM = 12;

/** User and system time of processes so far, in seconds; one that is gone counts nothing. */
export async function cpuSeconds(pids: readonly number[]): Promise<number> {
  const ticks = await Promise.all(pids.map(async (pid) => {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(fields[USER] ?? 0) + Number(fields[SYSTEM] ?? 0);
  }));
  return ticks.reduce((sum, value) => sum + value, 0) / TICKS_PER_SECOND;
}
