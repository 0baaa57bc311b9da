import type { Recipe } from './arithmetic.ts';
import type { MachineLimits } from './machine-limits.ts';
import type { ModelShape } from './model-shape.ts';
import { reached, reachedLine, type Reached } from './reached.ts';
import { decodeWork, prefillWork, type Work } from './work.ts';

export interface LaneOf {
  readonly shape: ModelShape;
  readonly recipe: Recipe;
  readonly limits: MachineLimits;
  /** Tokens of each prompt, and of each answer. */
  readonly context: number;
  readonly output: number;
  readonly sessions: number;
  readonly ubatch: number;
}

export interface LaneTimes {
  /** Of one decode step. */
  readonly stepMs: number;
  readonly prefillMs: number;
}

export interface LaneReached {
  readonly decode: Reached;
  readonly prefill: Reached;
  /** Lines for people. */
  readonly lines: readonly string[];
}

/** A decode step in the middle of the answer. */
export function middleStep({ shape, recipe, context, output, sessions }: LaneOf): Work {
  return decodeWork(shape, { ...recipe, sessions, context: context + output / 2 });
}

/** How near a system of a lane came to what the machine can do. */
export function laneReached(name: string, lane: LaneOf, { stepMs, prefillMs }: LaneTimes): LaneReached {
  const { shape, recipe, limits, context, sessions, ubatch } = lane;
  const { arithmetic } = recipe;
  const prompts = prefillWork(shape, { ...recipe, context, sessions, ubatch });
  const decode = reached({ work: middleStep(lane), ms: stepMs, arithmetic, limits });
  const prefill = reached({ work: prompts, ms: prefillMs, arithmetic, limits });
  return {
    decode, prefill,
    lines: [reachedLine(`${name} decode step`, stepMs, decode), reachedLine(`${name} prefill`, prefillMs, prefill)],
  };
}
