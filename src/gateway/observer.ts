/** What the gateway tells of its requests, to whoever counts them. Times in ms, words from closed sets. */
import type { ErrorCode } from '../errors.ts';

/** How a request for an answer ends. */
export const OUTCOMES = ['answered', 'refused', 'failed', 'cancelled'] as const;

/** `refused`: before its route was open, `failed`: after that, `cancelled`: nobody wanted the answer any more. */
export type Outcome = (typeof OUTCOMES)[number];

export interface RequestEnd {
  readonly outcome: Outcome;
  /** Of what was refused or failed. */
  readonly reason?: ErrorCode;
  /** Whether its route was open. */
  readonly opened: boolean;
}

/** What one stage says of one step. */
export interface StageParts {
  /** From its input, or its turn, to the start of computing. */
  readonly queueMs: number;
  readonly computeMs: number;
  /** From the end of computing to a frame that is ready; the last stage samples in it. */
  readonly handoverMs: number;
}

/** Where the time between two tokens went. */
export interface StepParts {
  /** In their order. */
  readonly stages: readonly StageParts[];
  /** What no stage claims: the way round the ring. */
  readonly networkMs: number;
}

export interface GatewayObserver {
  requestBegan(): void;
  /** It waited for a route until now. */
  requestOpened(): void;
  requestEnded(end: RequestEnd): void;
  /** Since the request began. */
  firstToken(ms: number): void;
  /** `count` more, `ms` after those before them. */
  moreTokens(count: number, ms: number): void;
  /** Of an answer that has its first token: so many of its prompt's tokens were held by a warm session. */
  promptCached(tokens: number): void;
  step(parts: StepParts): void;
}

/** An observer that shows what it has counted. */
export interface GatewayMetrics extends GatewayObserver {
  /** For Prometheus. */
  exposition(): Promise<{ readonly contentType: string; readonly text: string }>;
  /** For people. */
  summary(): Promise<object>;
}

const ignore = (): void => undefined;

export const unobserved: GatewayObserver = Object.freeze({
  requestBegan: ignore, requestOpened: ignore, requestEnded: ignore,
  firstToken: ignore, moreTokens: ignore, promptCached: ignore, step: ignore,
});
