import type { DISCONNECT_PHASES } from '../contract.ts';
import type { Load } from '../mesh/measures.ts';
import { POSITIONS, type ModelName } from '../mesh/model.ts';
import { cellsTaken } from '../mesh/systems.ts';
import { laneName, type LaneKey } from '../runner/lane-record.ts';
import type { MeshShape, Room } from './load-mesh.ts';

/** What a client leaves in. `prefill` is beside a session that decodes; `prefill_alone` is reported. */
export type Phase = typeof DISCONNECT_PHASES[number] | 'prefill_alone';

/** A stage stops, and others go on. */
export interface StallLane {
  readonly kind: 'stall';
  readonly model: ModelName;
  /** Through each of the two tails. */
  readonly each: Load;
  /** Of the last session through the stage that stops: it is not through when that happens. */
  readonly long: Omit<Load, 'sessions'>;
  readonly windowMs: number;
}

/** A client closes its connection. */
export interface DisconnectLane {
  readonly kind: 'disconnect';
  readonly model: ModelName;
  readonly phase: Phase;
  /** In a round, one after the other. */
  readonly times: number;
}

/** Many times as many clients as there is room for. */
export interface OverloadLane {
  readonly kind: 'overload';
  readonly model: ModelName;
  /** At capacity. */
  readonly each: Load;
  readonly factor: number;
  readonly windowMs: number;
  /** How long everything may take to be as before. */
  readonly backMs: number;
}

export type LoadLane = StallLane | DisconnectLane | OverloadLane;

/** Positions of a session that a long prompt leaves. */
export const LEFT = 16;
/** Of every other prompt. */
export const PROMPT = 32;
/** Places for sessions, where a client leaves. */
export const PLACES = 2;
/** Of the gateway, in an overload: who waits for longer than an answer or two takes is told to come back. */
const QUEUE_MS = 10_000;

export function contractLanes(): LoadLane[] {
  return [
    stall('1b', 60_000),
    ...disconnects('1b', 5),
    {
      kind: 'overload', model: '1b', each: { sessions: 8, prompt: PROMPT, output: 64 },
      factor: 10, windowMs: 30_000, backMs: 30_000,
    },
  ];
}

/** As little of each kind as shows that it works. */
export function smokeLanes(): LoadLane[] {
  return [
    stall('generated', 1000),
    ...disconnects('generated', 1),
    {
      kind: 'overload', model: 'generated', each: { sessions: 2, prompt: PROMPT, output: 32 },
      factor: 10, windowMs: 2000, backMs: 5000,
    },
  ];
}

function stall(model: ModelName, windowMs: number): StallLane {
  return {
    kind: 'stall', model, windowMs, each: { sessions: 4, prompt: PROMPT, output: POSITIONS[model] - PROMPT },
    long: { prompt: POSITIONS[model] - LEFT, output: LEFT },
  };
}

function disconnects(model: ModelName, times: number): DisconnectLane[] {
  const phases: readonly Phase[] = ['queued', 'prefill', 'decode_stream', 'decode_whole', 'prefill_alone'];
  return phases.map((phase) => ({ kind: 'disconnect', model, phase, times }));
}

/** The mesh that a lane needs; lanes with the same one share it. */
export function shapeOf(lane: LoadLane): MeshShape {
  switch (lane.kind) {
    case 'stall': {
      // A tail takes its own sessions and no more: so where the last one goes is known.
      const tail = roomFor(lane.each);
      return { tails: 2, head: { sequences: 2 * tail.sequences, cells: 2 * tail.cells }, tail, api: {} };
    }
    case 'disconnect': {
      const room = roomFor({ sessions: PLACES, prompt: POSITIONS[lane.model], output: 0 });
      return { tails: 1, head: room, tail: room, api: {} };
    }
    default: {
      const room = roomFor(lane.each);
      return { tails: 1, head: room, tail: room, api: { maxQueued: 2 * lane.each.sessions, queueMs: QUEUE_MS } };
    }
  }
}

function roomFor(load: Load): Room {
  return { sequences: load.sessions, cells: cellsTaken(load) };
}

/** The fields that name a lane in the record. */
export function laneKey(lane: LoadLane): LaneKey {
  const { kind: question, model } = lane;
  switch (lane.kind) {
    case 'stall':
      return { question, model, sessions: 2 * lane.each.sessions };
    case 'disconnect':
      return { question, phase: lane.phase, model };
    default:
      return { question, model, sessions: lane.each.sessions, clients: lane.factor * lane.each.sessions };
  }
}

export function nameOf(lane: LoadLane): string {
  return laneName(laneKey(lane));
}

/** Around each window: sessions begin and end. */
const AROUND_MS = 15_000;
/** One session begins, is left, and everything is at rest again. */
const LEAVE_MS = 3000;

/** Relative time of a lane: what the time that remains is guessed from. */
export function work(lane: LoadLane): number {
  return lane.kind === 'disconnect' ? lane.times * LEAVE_MS : 2 * (lane.windowMs + AROUND_MS);
}
