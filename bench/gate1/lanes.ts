import type { Sampling } from '../systems/system.ts';

/** Number formats that the mesh would carry, against the recipe in two of PyTorch's. */
export const LLAMA_FORMATS = ['f16', 'q8_0', 'q4_0'] as const;
export const TORCH_TYPES = ['float32', 'bfloat16'] as const;
export type LlamaFormat = (typeof LLAMA_FORMATS)[number];
export type TorchType = (typeof TORCH_TYPES)[number];

/** `generated` is the tiny model of a smoke run. */
export type ModelName = 'smollm2' | '1b' | 'generated';

export interface GateLane {
  readonly model: ModelName;
  /** Tokens of each prompt. */
  readonly context: number;
  readonly sessions: number;
  readonly sampling?: Sampling | undefined;
  readonly output: number;
}

const OUTPUT = 24;
const SAMPLING: Sampling = { temperature: 0.8, topK: 40, topP: 0.95, seed: 1 };

/** The lanes of the contract, in its order. */
export function contractLanes(): GateLane[] {
  const lanes: GateLane[] = [];
  for (const model of ['smollm2', '1b'] as const) {
    for (const context of [128, 2048]) {
      for (const sessions of [1, 4]) {
        lanes.push({ model, context, sessions, output: OUTPUT });
        if (model === 'smollm2' && context === 128) {
          lanes.push({ model, context, sessions, sampling: SAMPLING, output: OUTPUT });
        }
      }
    }
  }
  return lanes;
}

/** What a smoke run shows: both session counts, and both ways to choose a token. */
export function smokeLanes(): GateLane[] {
  return [
    { model: 'generated', context: 32, sessions: 1, sampling: SAMPLING, output: 4 },
    { model: 'generated', context: 32, sessions: 4, output: 4 },
  ];
}

/** The fields that name a lane in the record, in the order of the contract. */
export function laneKey({ model, context, sessions, sampling }: GateLane): Record<string, string | number> {
  return { model, context, sessions, sampling: sampling === undefined ? 'greedy' : 'sampled' };
}

/** Parameters of each model, in millions. */
const PARAMETERS: Readonly<Record<ModelName, number>> = { smollm2: 135, '1b': 1100, generated: 1 };
/** A decode step reads all weights for a few tokens; it takes as long as so many tokens of a prompt. */
const STEP_TOKENS = 8;

/** Relative time of a round: what orders the lanes, and counts their progress. */
export function work({ model, context, sessions, output }: GateLane): number {
  return PARAMETERS[model] * (context * sessions + output * (STEP_TOKENS + sessions));
}

/** The order in which they run: an interrupted run has most of them. */
export function cheapFirst(lanes: readonly GateLane[]): GateLane[] {
  return lanes.toSorted((a, b) => work(a) - work(b));
}
