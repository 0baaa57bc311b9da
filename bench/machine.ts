import { readFileSync } from 'node:fs';
import os from 'node:os';

/** What a result depends on besides the code. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly kernel: string;
  readonly node: string;
  readonly congestion: string;
  readonly memoryGiB: number;
}

export function machine(): Machine {
  return {
    cpu: os.cpus()[0]?.model.trim() ?? 'unknown',
    cores: os.availableParallelism(),
    kernel: os.release(),
    node: process.version,
    congestion: line('/proc/sys/net/ipv4/tcp_congestion_control') ?? 'unknown',
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
  };
}

/** Load and CPU pressure now; a run beside other work is marked by it. */
export function pressure(): { load: number; cpuAvg10: number | undefined } {
  const some = /avg10=([\d.]+)/.exec(line('/proc/pressure/cpu') ?? '');
  return { load: os.loadavg()[0] ?? 0, cpuAvg10: some === null ? undefined : Number(some[1]) };
}

function line(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').split('\n')[0];
  } catch {
    return undefined;
  }
}
