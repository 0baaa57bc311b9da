import { readdir, readFile } from 'node:fs/promises';
import { MeshnetError } from '../../src/errors.ts';

export interface NamedProcess {
  readonly name: string;
  readonly pid: number;
}

export interface Usage {
  readonly rssMiB: number;
  /** Open file descriptors. */
  readonly fds: number;
}

/** A process and all that it and its children have started, it first. */
export async function familyOf(root: NamedProcess): Promise<NamedProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  // One that ends meanwhile is nobody's child any more.
  const stats = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')));
  const all = stats.map(readStat).filter((one) => one !== undefined);
  const family = [root];
  for (const { name, pid } of family) {
    family.push(...all.filter(({ parent }) => parent === pid).map((child) => ({ name: `${name}: ${child.name}`, pid: child.pid })));
  }
  return family;
}

/** @throws {MeshnetError} INTERNAL when it has ended: what it held then is no measure of anything */
export async function usageOf({ name, pid }: NamedProcess): Promise<Usage> {
  try {
    const [status, fds] = await Promise.all([readFile(`/proc/${pid}/status`, 'utf8'), readdir(`/proc/${pid}/fd`)]);
    return { rssMiB: readRss(status), fds: fds.length };
  } catch (err) {
    throw new MeshnetError('INTERNAL', `a process ended while it was watched: ${name}`, { details: { pid }, cause: err });
  }
}

export function usagesOf(processes: readonly NamedProcess[]): Promise<Usage[]> {
  return Promise.all(processes.map(usageOf));
}

/** By how much each has grown; both lists are of the same processes in one order. */
export function growths(before: readonly Usage[], now: readonly Usage[], of: keyof Usage): number[] {
  return now.map((usage, i) => usage[of] - (before[i]?.[of] ?? Number.NaN));
}

/** proc(5), `/proc/[pid]/stat`: the name stands in brackets and may hold anything. */
export function readStat(stat: string): (NamedProcess & { readonly parent: number }) | undefined {
  const [, pid, name = '', parent] = /^(\d+) \((.*)\) \S (\d+)/s.exec(stat) ?? [];
  return pid === undefined ? undefined : { pid: Number(pid), name, parent: Number(parent) };
}

/** Resident memory by `/proc/[pid]/status`. */
export function readRss(status: string): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? Number.NaN) / 1024;
}
