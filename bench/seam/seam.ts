import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Bench } from '../bench.ts';
import { machine, pressure, waitForQuiet } from '../runner/machine.ts';
import { BIN } from '../systems/native.ts';
import { round } from '../runner/statistics.ts';

const run = promisify(execFile);
const PROGRAM_MS = 300_000;
/** How long to wait for other work on the machine to end. */
const QUIET_MS = 60_000;

interface Quantiles {
  readonly p10: number;
  readonly p50: number;
  readonly p95: number;
}

interface SizeRound {
  readonly bytes: number;
  readonly tcp_us: Quantiles;
  readonly seam_us: Quantiles;
}

interface Round {
  readonly round: number;
  readonly sizes: readonly SizeRound[];
}

/**
 * What a seam costs against the bare wire: frames of 2, 8 and 16 KiB there and back between two processes, over the
 * worker's own seams with an echo in place of the engine, and over raw TCP, block by block in one run.
 */
export const seam: Bench = async ({ smoke, signal, say }) => {
  const quiet = await waitForQuiet(smoke ? 0 : QUIET_MS, signal);
  const before = pressure();
  const plan = smoke ? { rounds: 2, frames: 50, warmup: 50 } : { rounds: 5, frames: 2000, warmup: 500 };
  const args = Object.entries(plan).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const { stdout } = await run(path.join(BIN, 'meshnet-bench-seam'), args, { signal, timeout: PROGRAM_MS });
  const [head = '', ...lines] = stdout.trimEnd().split('\n');
  const { grpc, pinned } = JSON.parse(head) as { grpc: string; pinned: boolean };
  const rounds = lines.map((line) => JSON.parse(line) as Round);
  for (const { round: n, sizes } of rounds) {
    say(`round ${n}: ${sizes.map(({ bytes, tcp_us: tcp, seam_us: over }) => `${bytes} bytes ${over.p50} µs, TCP ${tcp.p50}`).join('; ')}`);
  }
  const sizes = summarise(rounds);
  return {
    bench: 'seam',
    ratios: Object.fromEntries(sizes.flatMap(({ name, addedMs, overTcp }) => [
      [`seam_${name}_added_ms`, round(addedMs)],
      [`seam_${name}_over_tcp`, round(overTcp)],
    ])),
    context: {
      machine: machine(), engine: 'an echo', threads: 1, model: 'none', grpc, pinned, ...plan, best_of: 'p50 of each round',
      contended: !quiet, pressure: { before, after: pressure() },
    },
    details: { rounds, best: sizes },
    table: [
      `seam: round trips over loopback, best p50 of ${rounds.length} rounds${quiet ? '' : ', on a busy machine'}`,
      ...sizes.map(({ name, tcpMs, seamMs, addedMs, overTcp }) =>
        `  ${name.padEnd(4)} TCP ${tcpMs.toFixed(3)} ms, seam ${seamMs.toFixed(3)} ms: ${addedMs.toFixed(3)} ms above, ${overTcp.toFixed(1)} times`),
    ],
  };
};

interface Size {
  readonly name: string;
  readonly tcpMs: number;
  readonly seamMs: number;
  readonly addedMs: number;
  readonly overTcp: number;
}

/** The best p50 of each transport on its own, so that a disturbed TCP round cannot flatter the seam. */
function summarise(rounds: readonly Round[]): Size[] {
  const sizes = rounds[0]?.sizes.map(({ bytes }) => bytes) ?? [];
  return sizes.map((bytes, i) => {
    const best = (of: (size: SizeRound) => Quantiles): number =>
      Math.min(...rounds.map(({ sizes: all }) => of(all[i] as SizeRound).p50)) / 1000;
    const tcpMs = best((size) => size.tcp_us);
    const seamMs = best((size) => size.seam_us);
    return { name: `${bytes / 1024}k`, tcpMs, seamMs, addedMs: seamMs - tcpMs, overTcp: seamMs / tcpMs };
  });
}
