import type { StageTime } from '../systems/mesh-system.ts';
import { readingLimit, type MachineLimits } from './machine-limits.ts';
import type { Work } from './work.ts';

/** A part of a measured time. All parts of a budget add up to it. */
export interface BudgetPart {
  readonly part: string;
  readonly ms: number;
}

export interface StepTimes {
  /** One decode step, all in all. */
  readonly stepMs: number;
  /** Of it in the model; unset where the system does not tell. */
  readonly computeMs?: number | undefined;
  /** Of it choosing tokens. */
  readonly sampleMs?: number | undefined;
}

export interface StepBudgetOf extends StepTimes {
  readonly work: Work;
  readonly limits: MachineLimits;
}

/**
 * Where the time of a step in one process goes. Measured are the step, the computing and the sampling; of the
 * computing, reading at the bandwidth that this machine has is what no program can avoid, and the rest is a part of
 * its own.
 */
export function stepBudget({ stepMs, computeMs, sampleMs, work, limits }: StepBudgetOf): BudgetPart[] {
  const told = computeMs !== undefined;
  const sampling = sampleMs ?? 0;
  const computing = computeMs ?? stepMs - sampling;
  const rate = readingLimit(limits, work.bytes);
  const reading = [
    ...Object.entries(work.weightBytes).map(([type, bytes]) => ({ part: `reading weights, ${type}`, bytes })),
    { part: 'reading keys and values', bytes: work.kvBytes },
  ].map(({ part, bytes }) => ({ part, ms: bytes / rate / 1e6 }));
  // What comes faster than memory gives it stood in a cache: then reading is all of the computing.
  const share = Math.min(1, computing / sum(reading));
  const parts = reading.map(({ part, ms }) => ({ part, ms: ms * share }));
  return [
    ...parts,
    { part: told ? 'computing beyond reading' : 'everything beyond reading', ms: Math.max(0, computing - sum(parts)) },
    ...sampleMs === undefined ? [] : [{ part: 'sampling', ms: sampling }],
    ...told ? [{ part: 'unexplained', ms: stepMs - computing - sampling }] : [],
  ];
}

export interface MeshBudgetOf {
  /** From one token to the next at the gateway. */
  readonly stepMs: number;
  readonly stages: readonly StageTime[];
  /** One way, between neighbours. */
  readonly delayMs: number;
}

/**
 * Where a token's time goes in a mesh. The workers' own clocks give the stages; what is left of the measured time after
 * the delays of the way belongs to the seams: frames, sockets, wake-ups, and whatever nothing explains.
 */
export function meshBudget({ stepMs, stages, delayMs }: MeshBudgetOf): BudgetPart[] {
  const parts = [
    ...stages.map(({ computeMs }, stage) => ({ part: `computing, stage ${stage}`, ms: computeMs })),
    { part: 'waiting for a turn', ms: total(stages.map(({ queueMs }) => queueMs)) },
    { part: 'sampling and frames', ms: total(stages.map(({ handOverMs }) => handOverMs)) },
    // A ring: every stage sends to the next, the last one to the first.
    { part: `delays, ${stages.length} of ${delayMs} ms`, ms: stages.length > 1 ? stages.length * delayMs : 0 },
  ];
  return [...parts, { part: 'seams and unexplained', ms: stepMs - sum(parts) }];
}

function sum(parts: readonly BudgetPart[]): number {
  return total(parts.map(({ ms }) => ms));
}

function total(values: readonly number[]): number {
  return values.reduce((all, one) => all + one, 0);
}

/** Lines for people: each part and its share. */
export function budgetLines(parts: readonly BudgetPart[]): string[] {
  const all = sum(parts);
  return parts.map(({ part, ms }) =>
    `${part.padEnd(32)} ${ms.toFixed(2).padStart(9)} ms ${(ms / all * 100).toFixed(0).padStart(4)} %`);
}
