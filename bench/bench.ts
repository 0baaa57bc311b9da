import type { Figure, LaneKey, LaneRecord } from './runner/lane-record.ts';
import type { Context } from './runner/record.ts';

/** What a benchmark is asked for. */
export interface BenchOptions {
  /** A few small runs that show that the benchmark works; its figures mean nothing. */
  readonly smoke: boolean;
  readonly signal: AbortSignal;
  /** Progress, for people. */
  readonly say: (text: string) => void;
  /** Lanes that were not asked for are left out. */
  readonly wants: (key: LaneKey) => boolean;
}

/** What it gives. `ratios` are the figures that may be compared; everything else explains them. */
export interface BenchResult {
  readonly bench: string;
  readonly ratios: Readonly<Record<string, Figure>>;
  readonly context: Context;
  readonly lanes: readonly LaneRecord[];
  /** What belongs to no lane. */
  readonly details: Readonly<Record<string, unknown>>;
  /** Lines of a table for people. */
  readonly table: readonly string[];
}

export type Bench = (options: BenchOptions) => Promise<BenchResult>;
