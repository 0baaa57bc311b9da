/** What the answers of every API have in common; each API has its own objects around it. */
import type { AnswerEnd, AnswerPart } from './answer.ts';

export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
  readonly systemFingerprint: string;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}

export interface AnswerShapeOptions {
  readonly head: AnswerHead;
  /** Whether tokens carry log probabilities. */
  readonly logprobs: boolean;
  /** Whether a usage chunk is to come: then every other chunk has `usage: null`. */
  readonly usageChunk: boolean;
}

/** The objects of one answer in one API. */
export interface AnswerShape {
  /** Sent as soon as the route is open, if the API has something for it. */
  opening(): object | undefined;
  part(part: AnswerPart): object;
  ending(finish: AnswerEnd['finish']): object;
  usageChunk(usage: Usage): object;
  /** All of it at once. */
  whole(answer: AnswerPart, finish: AnswerEnd['finish'], usage: Usage): object;
}

export interface AnswerApi {
  /** Of ids of its answers. */
  readonly idPrefix: string;
  shape(options: AnswerShapeOptions): AnswerShape;
}

export function usageOf(promptTokens: number, completionTokens: number, cachedTokens: number): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

/** The text of one token, which may hold half a character. */
export function tokenText(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}

/** What the API itself sends for a token that was all but impossible; JSON has no infinity. */
const LOGPROB_FLOOR = -9999;

export function finiteLogprob(logprob: number): number {
  return Number.isNaN(logprob) ? LOGPROB_FLOOR : Math.max(logprob, LOGPROB_FLOOR);
}
