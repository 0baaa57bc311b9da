import { DELAYS_MS, LONG_PROMPT_DELAYS_MS, SECOND_TURN_DELAYS_MS, SESSIONS } from '../contract.ts';
import type { Load } from '../mesh/measures.ts';
import { POSITIONS, type ModelName } from '../mesh/model.ts';
import { laneName, type LaneKey } from '../runner/lane-record.ts';

/** One process with eight sessions, the same in stock llama.cpp, and the mesh with the lane's own sessions. */
export type SystemName = 'one8' | 'stock8' | 'mesh';

/** Of many sessions, at one delay. */
export interface GridLane {
  readonly kind: 'grid';
  readonly model: ModelName;
  /** One way, ms. */
  readonly delay: number;
  /** What each system is asked for. */
  readonly loads: { readonly one8: Load; readonly stock8?: Load; readonly mesh: Load };
}

/** A prompt near the limit of a session among sessions that decode. */
export interface LongLane {
  readonly kind: 'long';
  readonly model: ModelName;
  readonly delay: number;
  /** Tokens of the prompt. */
  readonly prompt: number;
  /** Undisturbed. */
  readonly decoders: Load;
  /** Tokens that each of them has when the prompt comes. */
  readonly after: number;
}

/** A conversation that goes on, against a prompt of the same length that is all new. */
export interface WarmLane {
  readonly kind: 'warm';
  readonly model: ModelName;
  readonly delay: number;
  /** Tokens of the first turn: prompt and answer. */
  readonly first: { readonly prompt: number; readonly output: number };
  /** New tokens of the second turn. */
  readonly more: number;
}

export type ConcurrencyLane = GridLane | LongLane | WarmLane;

/** The one process of the contract. */
const ONE8: Load = { sessions: 8, prompt: 32, output: 32 };
/** Of the mesh: long enough for every session to be under way with every other. */
const OUTPUT = 64;
const DECODERS: Load = { sessions: 3, prompt: 32, output: OUTPUT };
/** Positions that the long prompt leaves. */
const LEFT = 16;
const AFTER = 8;
/** A conversation of 1,000 tokens, and how it goes on. */
const FIRST_TURN = { prompt: 936, output: OUTPUT };
const MORE = 32;

/** A lane of these decides something; they come first, so that an interrupted run has them. */
const DECIDING: readonly (readonly [sessions: number, delay: number])[] = [[8, 0], [8, 20], [32, 50], [1, 20]];

export function contractLanes(): ConcurrencyLane[] {
  const reported = SESSIONS.flatMap((sessions) => DELAYS_MS.map((delay) => [sessions, delay] as const))
    .filter(([sessions, delay]) => !DECIDING.some(([n, d]) => n === sessions && d === delay));
  return [
    ...DECIDING.map(([sessions, delay]) => grid('1b', { sessions, delay })),
    ...LONG_PROMPT_DELAYS_MS.map((delay): ConcurrencyLane => ({
      kind: 'long', model: '1b', delay, prompt: POSITIONS['1b'] - LEFT, decoders: DECODERS, after: AFTER,
    })),
    ...SECOND_TURN_DELAYS_MS.map((delay): ConcurrencyLane => ({ kind: 'warm', model: '1b', delay, first: FIRST_TURN, more: MORE })),
    ...reported.map(([sessions, delay]) => grid('1b', { sessions, delay })),
  ];
}

/** As little of each kind as shows that it works. */
export function smokeLanes(): ConcurrencyLane[] {
  return [
    grid('generated', { sessions: 8, delay: 0, output: 16 }),
    grid('generated', { sessions: 1, delay: 5, output: 16 }),
    { kind: 'long', model: 'generated', delay: 0, prompt: 256, decoders: { ...DECODERS, output: 16 }, after: AFTER },
    { kind: 'warm', model: 'generated', delay: 0, first: { prompt: 96, output: 8 }, more: 8 },
  ];
}

interface GridOf {
  readonly sessions: number;
  readonly delay: number;
  readonly output?: number;
}

function grid(model: ModelName, { sessions, delay, output = OUTPUT }: GridOf): GridLane {
  const stock = sessions === ONE8.sessions && delay === 0 ? { stock8: ONE8 } : {};
  return { kind: 'grid', model, delay, loads: { one8: ONE8, ...stock, mesh: { sessions, prompt: ONE8.prompt, output } } };
}

/** What each system of the lane is asked for, in the order in which they run. */
export function loadsOf({ loads: { one8, stock8, mesh } }: GridLane): ReadonlyMap<SystemName, Load> {
  return new Map<SystemName, Load>([['one8', one8], ...stock8 === undefined ? [] : [['stock8', stock8] as const], ['mesh', mesh]]);
}

/** The fields that name a lane in the record. */
export function laneKey(lane: ConcurrencyLane): LaneKey {
  const { model, delay } = lane;
  if (lane.kind === 'long') {
    return { question: 'long', model, prompt: lane.prompt, sessions: lane.decoders.sessions + 1, delay };
  }
  if (lane.kind === 'warm') {
    return { question: 'warm', model, prompt: promptOf(lane), sessions: 1, delay };
  }
  const { prompt, sessions } = lane.loads.mesh;
  return { model, prompt, sessions, delay };
}

export function nameOf(lane: ConcurrencyLane): string {
  return laneName(laneKey(lane));
}

/** Tokens of the second turn's prompt. */
export function promptOf({ first, more }: WarmLane): number {
  return first.prompt + first.output + more;
}

/** Answers that outlast the long prompt: as long as a session may be. */
export function outlasting({ model, decoders }: LongLane): Load {
  return { ...decoders, output: POSITIONS[model] - decoders.prompt };
}

/** A step reads all weights for a few tokens; it takes as long as so many tokens of a prompt. */
const STEP_TOKENS = 8;
/** The delays of a step, in such tokens, for one ms of delay. */
const DELAY_TOKENS = 0.2;

/** Relative time of a lane: what the time that remains is guessed from. */
export function work(lane: ConcurrencyLane): number {
  const of = ({ sessions, prompt, output }: Load, delay = 0): number =>
    prompt * sessions + output * (STEP_TOKENS + sessions + delay * DELAY_TOKENS);
  if (lane.kind === 'long') {
    // Alone, and twice as long beside others.
    return 3 * lane.prompt + of(lane.decoders, lane.delay);
  }
  if (lane.kind === 'warm') {
    return promptOf(lane) + of({ ...lane.first, sessions: 1 }, lane.delay);
  }
  return [...loadsOf(lane)].reduce((sum, [name, load]) => sum + of(load, name === 'mesh' ? lane.delay : 0), 0);
}
