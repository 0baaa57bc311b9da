import path from 'node:path';
import { z } from 'zod';
import { BIN, pinned, run } from '../systems/native.ts';

/** A dozen measurements of about a second each. */
const MEASURE_MS = 300_000;
const MIB = 1024 * 1024;

const Answer = z.object({
  threads: z.int().positive(),
  features: z.array(z.string()),
  /** By the memory that is walked over: small sets stay in caches. */
  read: z.array(z.object({ mib: z.number().positive(), gb_s: z.number().positive() })).min(1),
  copy_gb_s: z.number().positive(),
  f32_gflops: z.number().positive(),
  int8_gops: z.number().positive().optional(),
  bf16_gflops: z.number().positive().optional(),
  amx_int8_gops: z.number().positive().optional(),
  amx_bf16_gflops: z.number().positive().optional(),
});

/** What the machine can do with so many threads, in GB/s and in 10⁹ operations per second. */
export type MachineLimits = Readonly<z.infer<typeof Answer>>;

/** The numbers that a product multiplies: quantised weights meet activations of 8 bits. */
export type Arithmetic = 'f32' | 'bf16' | 'int8';

export interface MeasureOptions {
  /** Where the threads run, one each. */
  readonly cores: readonly number[];
  /** Of each measurement. @default the program's own */
  readonly seconds?: number;
  readonly signal: AbortSignal;
}

/** Measured once a run. Nothing else may run meanwhile. */
export async function measureLimits({ cores, seconds, signal }: MeasureOptions): Promise<MachineLimits> {
  const [command, args] = pinned(cores, [
    path.join(BIN, 'meshnet-bench-limits'), '--measure', '--threads', String(cores.length),
    ...seconds === undefined ? [] : ['--seconds', String(seconds)],
  ]);
  const { stdout } = await run(command, args, { signal, timeout: MEASURE_MS });
  return Answer.parse(JSON.parse(stdout));
}

/** GB/s at which a set of so many bytes can be read, again and again. */
export function readingLimit({ read }: MachineLimits, bytes: number): number {
  // Whatever a larger set reached, a smaller one can reach too.
  const large = read.filter(({ mib }) => mib * MIB >= bytes);
  const sets = large.length > 0 ? large : [read.reduce((most, one) => (one.mib > most.mib ? one : most))];
  return Math.max(...sets.map(({ gb_s: rate }) => rate));
}

/** 10⁹ operations per second with the best instruction of the machine; without `tiles`, of all others. */
export function computingLimit(limits: MachineLimits, arithmetic: Arithmetic, tiles = true): number {
  const { f32_gflops: f32 } = limits;
  const [vector = 0, tile = 0] = {
    f32: [],
    bf16: [limits.bf16_gflops, limits.amx_bf16_gflops],
    int8: [limits.int8_gops, limits.amx_int8_gops],
  }[arithmetic];
  return Math.max(f32, vector, tiles ? tile : 0);
}
