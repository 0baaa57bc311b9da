import { DELAYS_MS } from '../contract.ts';
import { laneName, type LaneKey } from '../runner/record.ts';

/** `generated` is the tiny model of a smoke run. */
export type ModelName = '1b' | 'generated';

/** llama.cpp RPC with half of the layers in the client, by the micro-batch of its prompts; the first is its default. */
export const HALF_RPC = ['rpc1l', 'rpc1l_ub128', 'rpc1l_ub64'] as const;
export type SystemName = 'local' | 'ours' | 'rpc2' | typeof HALF_RPC[number];

export interface Question {
  readonly model: ModelName;
  /** Tokens of each prompt. */
  readonly prompt: number;
  readonly sessions: number;
  /** One way, ms. */
  readonly delay: number;
  readonly output: number;
  readonly systems: readonly SystemName[];
}

/** `decode` and `prefill` are speed, `wire` is what a token costs a link, `fit` what a limit on memory lets live. */
export type Gate5Lane =
  | Question & { readonly kind: 'decode' | 'prefill' | 'wire' }
  | { readonly kind: 'fit'; readonly model: ModelName };

const PROMPT = 32;
const OUTPUT = 24;
const ALL = ['local', 'rpc1l', 'rpc2', 'ours'] as const;

/** The lanes of the contract. */
export function contractLanes(): Gate5Lane[] {
  const model = '1b';
  return [
    ...[1, 8].flatMap((sessions) => DELAYS_MS.map((delay) =>
      ({ kind: 'decode' as const, model, prompt: PROMPT, sessions, delay, output: OUTPUT, systems: ALL } as const))),
    { kind: 'decode', model, prompt: PROMPT, sessions: 32, delay: 50, output: OUTPUT, systems: ['local', 'ours'] },
    { kind: 'prefill', model, prompt: 384, sessions: 1, delay: 20, output: 2, systems: ['local', ...HALF_RPC, 'ours'] },
    ...[1, 8].map((sessions) =>
      ({ kind: 'wire', model, prompt: PROMPT, sessions, delay: 20, output: OUTPUT, systems: ['rpc1l', 'rpc2', 'ours'] } as const)),
    { kind: 'fit', model },
  ];
}

/** No delay, one session, as little of it as shows that it works. */
export function smokeLanes(): Gate5Lane[] {
  const common = { model: 'generated', sessions: 1, delay: 0 } as const;
  return [
    { ...common, kind: 'decode', prompt: 32, output: 8, systems: ALL },
    { ...common, kind: 'prefill', prompt: 64, output: 2, systems: ['local', ...HALF_RPC, 'ours'] },
    { ...common, kind: 'wire', prompt: 32, output: 8, systems: ['rpc1l', 'rpc2', 'ours'] },
    { kind: 'fit', model: 'generated' },
  ];
}

/** The fields that name a lane in the record. What is no speed says so first. */
export function laneKey(lane: Gate5Lane): LaneKey {
  if (lane.kind === 'fit') {
    return { question: 'fit', model: lane.model };
  }
  const { kind, model, prompt, sessions, delay } = lane;
  return { ...kind === 'wire' ? { question: kind } : {}, model, prompt, sessions, delay };
}

export function nameOf(lane: Gate5Lane): string {
  return laneName(laneKey(lane));
}

/** A step reads all weights for a few tokens; it takes as long as so many tokens of a prompt. */
const STEP_TOKENS = 8;
/** One way of delay, in such tokens, and how often a step pays it over all systems. */
const DELAY_TOKENS = 0.1;
/** Loading a model several times, in the same unit. */
const FIT_WORK = 3000;

/** Relative time of a lane: what the time that remains is guessed from. */
export function work(lane: Gate5Lane): number {
  if (lane.kind === 'fit') {
    return FIT_WORK;
  }
  const { prompt, sessions, delay, output, systems } = lane;
  return systems.length * (prompt * sessions + output * (STEP_TOKENS + sessions + delay * DELAY_TOKENS));
}
