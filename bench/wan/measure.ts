/** Measures the delay line itself and prints the tables of README.md: `node bench/wan/measure.ts`. */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { machine, pressure, waitForQuiet } from '../runner/machine.ts';
import { quantile } from '../runner/statistics.ts';
import { pinned } from '../systems/native.ts';
import { lostPackets } from './counters.ts';
import { DelayLine, type DelayLineInit } from './delay-line.ts';
import { Probe } from './probe.ts';

const DELAYS_MS = [0, 5, 20, 50];
const FRAME_BYTES = 8192;
const GAP_US = 30_000;
const QUIET_MS = 120_000;
/** What is measured is the line: its two programs shall not wait for a time slice either. */
const AT_ONCE = ['chrt', '--fifo', '1'];
const signal = AbortSignal.timeout(1_200_000);

const say = (text: string): void => { process.stdout.write(`${text}\n`); };
const row = (...cells: (string | number)[]): void => { say(`| ${cells.join(' | ')} |`); };
const header = (...names: string[]): void => { row(...names); say(`|${'---|'.repeat(names.length)}`); };
const fixed = (value: number, digits = 0): string => value.toFixed(digits);

/** Time in which the machine's host ran something else in our place; NaN where the kernel does not tell. */
function stolenMs(): number {
  const MS_A_TICK = 10;
  return Number(readFileSync('/proc/stat', 'utf8').split('\n')[0]?.trim().split(/\s+/)[8]) * MS_A_TICK;
}

async function withLine(init: DelayLineInit, body: (line: DelayLine, probe: Probe) => Promise<void>): Promise<void> {
  await using line = await DelayLine.open(init, { signal });
  await using probe = await Probe.open(line, { from: 0, to: 1, launcher: AT_ONCE });
  await body(line, probe);
}

/** A loop that never sleeps, on every core. */
function occupyCores(): ChildProcess[] {
  return Array.from({ length: availableParallelism() }, (_, core) =>
    spawn(...pinned(core, [process.execPath, '-e', 'for (;;) {}']), { stdio: 'ignore' }));
}

async function echoes(cores: 'idle' | 'busy'): Promise<void> {
  const busy = cores === 'busy' ? occupyCores() : [];
  try {
    await withLine({}, async (line, probe) => {
      for (const delayMs of DELAYS_MS) {
        await line.set({ delayMs });
        await line.reset();
        const { cpuMs } = await line.counters();
        const stolen = stolenMs();
        const n = delayMs === 0 ? 2000 : 400;
        const { us, lost } = await probe.datagrams({ n, bytes: 64, gapUs: 2000 });
        const after = await line.counters();
        const added = us.map((one) => one - 2000 * delayMs);
        row(delayMs, cores, ...[0, 0.5, 0.95, 0.99].map((share) => fixed(quantile(added, share))), fixed(after.lateMeanUs, 1),
          fixed(after.lateMaxUs), stolenMs() - stolen, fixed((after.cpuMs - cpuMs) * 1000 / (2 * n)), lost + lostPackets(after));
      }
    });
  } finally {
    busy.forEach((child) => child.kill('SIGKILL'));
  }
}

async function transfers(): Promise<void> {
  for (const [delayMs, rateMbit, size] of [[0, 0, 200e6], [20, 0, 100e6], [0, 100, 20e6], [20, 100, 20e6]] as const) {
    await withLine({ delayMs, rateMbit, queueBytes: 1 << 21 }, async (line, probe) => {
      const { cpuMs } = await line.counters();
      const { ms, intact } = await probe.bulk(size);
      const after = await line.counters();
      const packets = after.pairs.reduce((sum, pair) => sum + pair.packets, 0);
      row(delayMs, rateMbit === 0 ? 'none' : rateMbit, size / 1e6, fixed(size * 8 / ms / 1000), fixed((after.cpuMs - cpuMs) * 1000 / packets, 1),
        after.pairs[0]?.droppedPackets ?? 0, intact ? 'yes' : 'no');
    });
  }
}

/** What TCP itself adds to a frame after a pause, on a new connection and after one large frame. */
async function frames(congestion: string): Promise<void> {
  await withLine({ sysctls: { 'net.ipv4.tcp_congestion_control': congestion } }, async (line, probe) => {
    for (const delayMs of DELAYS_MS) {
      await line.set({ delayMs });
      for (const bytes of [FRAME_BYTES, 4 * FRAME_BYTES]) {
        const cells: string[] = [];
        for (const warmBytes of [undefined, 1 << 20]) {
          const added = (await probe.frames({ n: 40, bytes, gapUs: GAP_US, warmBytes })).map((us) => us / 1000 - 2 * delayMs);
          cells.push(fixed(added[0] ?? Number.NaN, 1), fixed(quantile(added.slice(10), 0.5), 1));
        }
        row(congestion, delayMs, bytes / 1024, ...cells);
      }
    }
  });
}

const reason = await DelayLine.unavailable();
if (reason !== undefined) {
  say(reason);
  process.exit(0);
}
const quiet = await waitForQuiet(QUIET_MS, signal);
const { cpu, cores, kernel } = machine();
say(`${cpu}, ${cores} cores, Linux ${kernel}; ${quiet ? 'quiet' : 'contended'}, load ${pressure().load}\n`);
header('one-way ms', 'cores', 'min µs', 'p50', 'p95', 'p99', 'late: mean µs', 'max', 'stolen ms', 'CPU µs a packet', 'lost');
await echoes('idle');
await echoes('busy');
say('');
header('one-way ms', 'rate Mbit/s', 'MB', 'Mbit/s', 'CPU µs a packet', 'dropped', 'intact');
await transfers();
say('');
header('congestion', 'one-way ms', 'KiB', 'new: first ms', 'new: p50', 'after 1 MiB: first', 'after 1 MiB: p50');
for (const congestion of ['bbr', 'reno']) {
  await frames(congestion);
}
say(`\nload ${pressure().load}`);
