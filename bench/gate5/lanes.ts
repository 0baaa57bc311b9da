import { DELAYS_MS } from '../contract.ts';
import type { ModelName } from '../mesh/model.ts';
import { laneName, type LaneKey } from '../runner/lane-record.ts';

/** llama.cpp RPC with half of the layers in the client, by the micro-batch of its prompts; the first is its default. */
export const HALF_RPC = ['rpc1l', 'rpc1l_ub128', 'rpc1l_ub64'] as const;
/** `rpc1l_head` keeps the output head in the client, so that no logits come back: not what llama.cpp does by itself. */
export type SystemName = 'local' | 'ours' | 'rpc2' | 'rpc1l_head' | typeof HALF_RPC[number];

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

export type SpeedLane = Extract<Gate5Lane, Question>;

const PROMPT = 32;
const OUTPUT = 24;
const ALL = ['local', 'rpc1l', 'rpc2', 'ours'] as const;
const SINGLE = ['local', 'rpc1l', 'rpc1l_head', 'rpc2', 'ours'] as const;

/** The lanes of the contract. What decides most comes first: an interrupted run has it. */
export function contractLanes(): Gate5Lane[] {
  const common = { model: '1b', prompt: PROMPT, output: OUTPUT } as const;
  const decode = { ...common, kind: 'decode' } as const;
  const wire = { ...common, kind: 'wire', delay: 20, systems: ['rpc1l', 'rpc2', 'ours'] } as const;
  const many = DELAYS_MS.map((delay): Gate5Lane => ({ ...decode, sessions: 8, delay, systems: ALL }));
  const [none, short, middle, long] = many as [Gate5Lane, Gate5Lane, Gate5Lane, Gate5Lane];
  return [
    { kind: 'fit', model: '1b' },
    ...DELAYS_MS.map((delay): Gate5Lane => ({ ...decode, sessions: 1, delay, systems: SINGLE })),
    { model: '1b', kind: 'prefill', prompt: 384, sessions: 1, delay: 20, output: 2, systems: ['local', ...HALF_RPC, 'ours'] },
    { ...wire, sessions: 1, output: 2 * OUTPUT },
    none, middle,
    { ...decode, sessions: 32, delay: 50, systems: ['local', 'ours'] },
    short, long,
    { ...wire, sessions: 8, output: OUTPUT / 2 },
  ];
}

/** No delay, one session, as little of it as shows that it works. */
export function smokeLanes(): Gate5Lane[] {
  const common = { model: 'generated', sessions: 1, delay: 0 } as const;
  return [
    { ...common, kind: 'decode', prompt: 32, output: 8, systems: SINGLE },
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
