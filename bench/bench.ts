import type { Machine } from './runner/machine.ts';

/** What a benchmark is asked for. */
export interface BenchOptions {
  /** A few small runs that show that the benchmark works; its figures mean nothing. */
  readonly smoke: boolean;
  readonly signal: AbortSignal;
  /** Progress, for people. */
  readonly say: (text: string) => void;
}

/** What it gives. `ratios` are the figures that may be compared; everything else explains them. */
export interface BenchResult {
  readonly bench: string;
  readonly ratios: Readonly<Record<string, number>>;
  readonly context: {
    readonly machine: Machine;
    readonly engine: string;
    readonly threads: number;
    readonly model: string;
    readonly [more: string]: unknown;
  };
  /** Absolute figures, intervals, pairs. */
  readonly details: Readonly<Record<string, unknown>>;
  /** Lines of a table for people. */
  readonly table: readonly string[];
}

export type Bench = (options: BenchOptions) => Promise<BenchResult>;
