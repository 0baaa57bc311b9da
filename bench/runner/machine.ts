import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import { setTimeout } from 'node:timers/promises';

/** What a result depends on besides the code. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly kernel: string;
  readonly node: string;
  readonly congestion: string;
  readonly memoryGiB: number;
  /** Instruction sets that an engine may use. */
  readonly features: readonly string[];
}

const FEATURES = /^(sse4_2|avx\w*|amx\w*|f16c|fma|asimd\w*|sve\w*|i8mm|bf16)$/;

export function machine(): Machine {
  return {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    cores: os.availableParallelism(),
    kernel: os.release(),
    node: process.version,
    congestion: line('/proc/sys/net/ipv4/tcp_congestion_control') ?? 'unknown',
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    features: features(),
  };
}

function features(): string[] {
  const flags = /^(?:flags|Features)\s*:(.*)$/m.exec(text('/proc/cpuinfo') ?? '')?.[1] ?? '';
  return flags.split(' ').filter((flag) => FEATURES.test(flag)).toSorted();
}

/** Load and CPU pressure now; a run beside other work is marked by it. */
export function pressure(): { load: number; cpuAvg10?: number | undefined } {
  const some = /avg10=([\d.]+)/.exec(line('/proc/pressure/cpu') ?? '');
  return { load: os.loadavg()[0] ?? 0, cpuAvg10: some === null ? undefined : Number(some[1]) };
}

/** The checkout that is measured, `-dirty` when files of it were changed, results left out; `unknown` outside of git. */
export function commit(): string {
  try {
    const changed = git('status', '--porcelain', '--untracked-files=no', '--', ':/', ':(top,exclude)bench/results');
    return git('rev-parse', '--short=12', 'HEAD') + (changed === '' ? '' : '-dirty');
  } catch {
    return 'unknown';
  }
}

function git(...args: readonly string[]): string {
  return execFileSync('git', args, { cwd: import.meta.dirname, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
}

/** Percent of the last ten seconds in which something waited for a core: below it the machine counts as quiet. */
const QUIET_PERCENT = 10;
const LOOK_EVERY_MS = 1000;

/** False when the machine is still busy after that time; true, too, where the kernel does not tell. */
export async function waitForQuiet(withinMs: number, signal: AbortSignal): Promise<boolean> {
  const deadline = performance.now() + withinMs;
  while ((pressure().cpuAvg10 ?? 0) >= QUIET_PERCENT) {
    if (performance.now() > deadline) {
      return false;
    }
    await setTimeout(LOOK_EVERY_MS, undefined, { signal });
  }
  return true;
}

function line(file: string): string | undefined {
  return text(file)?.split('\n')[0];
}

function text(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
