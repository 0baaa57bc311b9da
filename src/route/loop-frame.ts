import { LIMITS } from '../domain/limits.ts';
import { MeshnetError } from '../errors.ts';
import { Finish, Phase, type Frame } from '../proto/seam_pb.js';

export type FinishName = 'end' | 'max_tokens' | 'context_full' | 'cancelled';

/** What one loop frame brought. */
export interface Step {
  readonly ids: number[];
  readonly logprobs?: { logprob: number; topIds: number[]; topLogprobs: number[] }[];
  readonly finish?: FinishName;
  /** What the step cost at each stage, in their order and by their own clocks: told, not checked. */
  readonly times?: readonly StageTime[];
}

/** Microseconds of one step at one stage. */
export interface StageTime {
  readonly queueUs: number;
  readonly computeUs: number;
  /** From the end of computing to a frame that is ready; at the last stage the sampling is in it. */
  readonly serializeUs: number;
}

/** What a turn asked for, as far as its loop frames are held to it. */
export interface Wanted {
  readonly maxTokens: number;
  /** Alternatives per token; below 0: no logprobs. */
  readonly logprobs: number;
}

const FINISH_NAMES: Readonly<Record<number, FinishName>> = {
  [Finish.END]: 'end', [Finish.MAX_TOKENS]: 'max_tokens', [Finish.CONTEXT_FULL]: 'context_full',
  [Finish.CANCELLED]: 'cancelled',
};

/**
 * Holds a frame of a running turn against what was asked for. `received`: tokens of the turn before it. A head that only keeps
 * the line busy, or never stops, is found out here.
 *
 * @throws {MeshnetError} PROTOCOL_VIOLATION
 */
export function checkLoopFrame(frame: Frame, wanted: Wanted, received: number): void {
  const { phase, nTokens, tokens, logprobs, finish, times } = frame;
  const isFinish = finish !== Finish.UNSPECIFIED;
  const asked = wanted.logprobs >= 0 ? tokens.length : 0;
  check(phase === Phase.LOOP, 'something else than a loop frame', { phase });
  check(!isFinish || FINISH_NAMES[finish] !== undefined, 'an unknown finish', { finish });
  check(nTokens === tokens.length, 'another number of tokens than it names', { named: nTokens, sent: tokens.length });
  check(tokens.every((id) => id >= 0), 'an id below 0', {});
  check(tokens.length > 0 || isFinish, 'a loop frame without tokens', {});
  check(received + tokens.length <= wanted.maxTokens, 'more tokens than were asked for', {
    tokens: received + tokens.length, limit: wanted.maxTokens,
  });
  check(logprobs.length === asked, 'another number of logprobs than was asked for', { asked, sent: logprobs.length });
  check(times.length <= LIMITS.stagesPerRoute, 'times of more stages than a route has', {
    stages: times.length, limit: LIMITS.stagesPerRoute,
  });
  for (const { topIds, topLogprobs } of logprobs) {
    check(topIds.length === topLogprobs.length && topIds.length <= LIMITS.topLogprobs, 'alternatives out of bounds', {
      ids: topIds.length, logprobs: topLogprobs.length, limit: LIMITS.topLogprobs,
    });
  }
}

export function stepOf(frame: Frame): Step {
  const finish = FINISH_NAMES[frame.finish];
  const logprobs = frame.logprobs.map(({ logprob, topIds, topLogprobs }) => ({ logprob, topIds, topLogprobs }));
  const times = frame.times.map(({ queueUs, computeUs, serializeUs }) => ({ queueUs, computeUs, serializeUs }));
  return {
    ids: frame.tokens,
    ...(times.length > 0 ? { times } : {}),
    ...(logprobs.length > 0 ? { logprobs } : {}),
    ...(finish === undefined ? {} : { finish }),
  };
}

function check(holds: boolean, what: string, details: Record<string, unknown>): void {
  if (!holds) {
    throw new MeshnetError('PROTOCOL_VIOLATION', `the head sent ${what}`, { details: { ...details, stage: 0 } });
  }
}
