import path from 'node:path';
import { z } from 'zod';
import type { Bench } from '../bench.ts';
import { seamMeasures } from '../runner/first-records.ts';
import { askedLanes } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import { Progress } from '../runner/progress.ts';
import { ratioOf, roundsRecord, runRounds, type Measures, type Ratio } from '../runner/rounds.ts';
import { median } from '../runner/statistics.ts';
import { BIN, run } from '../systems/native.ts';

const PROGRAM_MS = 300_000;

const Quantiles = z.object({ p10: z.number(), p50: z.number(), p95: z.number() });
const Head = z.object({ grpc: z.string(), pinned: z.boolean() });
const Round = z.object({ sizes: z.array(z.object({ bytes: z.int(), tcp_us: Quantiles, seam_us: Quantiles })) });

const SIZES = ['2k', '8k', '16k'];

/**
 * What a seam costs against the bare wire: frames of 2, 8 and 16 KiB there and back between two processes, over the
 * worker's own seams with an echo in place of the engine, and over raw TCP, block by block in one run.
 */
export const seam: Bench = async ({ smoke, signal, say, wants }) => {
  const plan = smoke ? { frames: 50, warmup: 50 } : { frames: 2000, warmup: 500 };
  const key = { engine: 'an echo', ...plan };
  askedLanes('seam', [key], wants);
  let head: z.infer<typeof Head> | undefined;
  // One program sends over both by turns, a few milliseconds apart; what alternates is not for the rounds to order.
  const rounds = await runRounds<'both'>({
    systems: ['both'], smoke, signal, ...new Progress([{ name: 'round trips', work: 1 }], say).lane(0),
    run: async () => {
      const args = Object.entries({ rounds: 1, ...plan }).flatMap(([name, value]) => [`--${name}`, String(value)]);
      const { stdout } = await run(path.join(BIN, 'meshnet-bench-seam'), args, { signal, timeout: PROGRAM_MS });
      const [first = '', second = ''] = stdout.split('\n');
      head = Head.parse(JSON.parse(first));
      return seamMeasures(Round.parse(JSON.parse(second)).sizes);
    },
  });
  const p50 = (runs: { both: Measures }, name: string): number => Number(runs.both[`${name}_p50_us`]);
  const ratios = Object.fromEntries(SIZES.flatMap((size) => [
    [`seam_${size}_added_ms`, ratioOf(rounds, (runs) => (p50(runs, `seam_${size}`) - p50(runs, `tcp_${size}`)) / 1000)],
    [`seam_${size}_over_tcp`, ratioOf(rounds, (runs) => p50(runs, `seam_${size}`) / p50(runs, `tcp_${size}`))],
  ]));
  const { good, discarded, contended } = rounds;
  const middle = (name: string): string => (median(good.map(({ runs }) => p50(runs, name))) / 1000).toFixed(3);
  return {
    bench: 'seam',
    ratios,
    context: { machine: machine(), engine: 'an echo', threads: 1, model: 'none', ...head, ...plan },
    lanes: [{ key, systems: ['both'], ...roundsRecord(rounds), ratios }],
    details: {},
    table: [
      `seam: round trips over loopback, median p50 of ${good.length} rounds, ${discarded.length} discarded` +
        (contended ? ', on a busy machine: judged by nothing' : ''),
      ...SIZES.map((size) => {
        const { median: added, low, high } = ratios[`seam_${size}_added_ms`] as Ratio;
        return `  ${size.padEnd(4)} TCP ${middle(`tcp_${size}`)} ms, seam ${middle(`seam_${size}`)} ms: ` +
          `${added} ms above  [${low}, ${high}]`;
      }),
    ],
  };
};
