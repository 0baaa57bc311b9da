import type { Report } from '../../src/proto/worker_pb.js';
import type { Load } from '../mesh/measures.ts';
import type { Call } from './call.ts';
import { LEFT, PLACES, PROMPT, type Phase } from './lanes.ts';
import { until } from './until.ts';

/** Tokens that a session has when it counts as under way. */
export const AFTER = 8;
/** A phase is reached within this, or something is wrong. */
const REACHED_MS = 60_000;
/** Each look asks a worker or the gateway. */
const LOOK_EVERY_MS = 5;

/** What tells that a call is in its phase. */
export interface Signs {
  readonly call: Pick<Call, 'opened' | 'reaches'>;
  /** What the tail's worker told before the call. */
  readonly before: Counts;
  /** What it tells now. */
  readonly report: () => Promise<Counts>;
  /** Requests that wait at the gateway. */
  readonly waiting: () => Promise<number>;
  readonly signal: AbortSignal;
}

type Counts = Pick<Report, 'tokensPrefilled' | 'tokensDecoded'>;

export interface Scene {
  /** Sessions that decode beside it. */
  readonly others: number;
  readonly stream: boolean;
  /** It waits at the gateway and holds nothing at a stage. */
  readonly waits: boolean;
  /** Tokens may have come. */
  readonly answering: boolean;
  /** What it asks for, of so many positions. */
  readonly load: (positions: number) => Omit<Load, 'sessions'>;
  readonly reached: (signs: Signs) => Promise<void>;
}

const short = (positions: number): Omit<Load, 'sessions'> => ({ prompt: PROMPT, output: positions - PROMPT });
const long = (positions: number): Omit<Load, 'sessions'> => ({ prompt: positions - LEFT, output: LEFT });

/** The tail has some of the prompt, so every stage is at work on it. */
async function prefilling({ call, before, report, signal }: Signs): Promise<void> {
  await call.opened(signal);
  await until('the tail has some of the prompt', async () => (await report()).tokensPrefilled > before.tokensPrefilled, {
    withinMs: REACHED_MS, everyMs: LOOK_EVERY_MS, signal,
  });
}

export const SCENES: Readonly<Record<Phase, Scene>> = {
  queued: {
    others: PLACES, stream: true, waits: true, answering: false, load: short,
    reached: ({ waiting, signal }) => until('the request waits', async () => await waiting() === 1, {
      withinMs: REACHED_MS, everyMs: LOOK_EVERY_MS, signal,
    }),
  },
  prefill: { others: 1, stream: true, waits: false, answering: false, load: long, reached: prefilling },
  prefill_alone: { others: 0, stream: true, waits: false, answering: false, load: long, reached: prefilling },
  decode_stream: {
    others: 0, stream: true, waits: false, answering: true, load: short,
    reached: ({ call, signal }) => call.reaches(AFTER, signal),
  },
  decode_whole: {
    others: 0, stream: false, waits: false, answering: true, load: short,
    // Nothing of it reaches the client before its end, so the tail is asked.
    reached: ({ before, report, signal }) => until('the answer is under way', async () =>
      (await report()).tokensDecoded >= before.tokensDecoded + BigInt(AFTER), {
      withinMs: REACHED_MS, everyMs: LOOK_EVERY_MS, signal,
    }),
  },
};
