/** The objects of the chat API, exactly as clients parse them. Pure: ids and times come from outside. */
import type { AnswerEnd, TokenDetail } from './answer.ts';

/** What every object of one answer has in common. */
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

export interface Logprob {
  token: string;
  logprob: number;
  bytes: number[];
}

export interface Logprobs {
  content: (Logprob & { top_logprobs: Logprob[] })[];
  refusal: null;
}

export interface Delta {
  role?: 'assistant';
  content?: string;
}

export interface ChunkChoice {
  index: number;
  delta: Delta;
  logprobs: Logprobs | null;
  finish_reason: AnswerEnd['finish'] | null;
}

export interface Chunk {
  id: string;
  object: 'chat.completion.chunk';
  created: number;
  model: string;
  system_fingerprint: string;
  choices: ChunkChoice[];
  usage?: Usage | null;
}

export interface Completion {
  id: string;
  object: 'chat.completion';
  created: number;
  model: string;
  system_fingerprint: string;
  choices: {
    index: number;
    message: { role: 'assistant'; content: string; refusal: null };
    logprobs: Logprobs | null;
    finish_reason: AnswerEnd['finish'];
  }[];
  usage: Usage;
}

export function usageOf(promptTokens: number, completionTokens: number, cachedTokens: number): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

export function logprobsOf(tokens: readonly TokenDetail[]): Logprobs {
  return {
    content: tokens.map(({ bytes, logprob, top }) => ({
      ...logprobOf(bytes, logprob),
      top_logprobs: top.map((other) => logprobOf(other.bytes, other.logprob)),
    })),
    refusal: null,
  };
}

/** The floor is what the API itself sends for a token that was all but impossible; JSON has no infinity. */
const LOGPROB_FLOOR = -9999;

function logprobOf(bytes: Uint8Array, logprob: number): Logprob {
  const finite = Number.isNaN(logprob) ? LOGPROB_FLOOR : Math.max(logprob, LOGPROB_FLOOR);
  return { token: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), logprob: finite, bytes: [...bytes] };
}

/** One chunk. With `withUsage` every chunk has `usage: null`, as the API promises once a usage chunk is to come. */
export function chunkOf(
  head: AnswerHead,
  choice: { delta: Delta; logprobs?: Logprobs; finish?: AnswerEnd['finish'] },
  withUsage: boolean,
): Chunk {
  return {
    ...chunkHead(head),
    choices: [{ index: 0, delta: choice.delta, logprobs: choice.logprobs ?? null, finish_reason: choice.finish ?? null }],
    ...(withUsage ? { usage: null } : {}),
  };
}

export function usageChunkOf(head: AnswerHead, usage: Usage): Chunk {
  return { ...chunkHead(head), choices: [], usage };
}

export function completionOf(
  head: AnswerHead,
  choice: { content: string; logprobs?: Logprobs; finish: AnswerEnd['finish'] },
  usage: Usage,
): Completion {
  return {
    id: head.id,
    object: 'chat.completion',
    created: head.created,
    model: head.model,
    system_fingerprint: head.systemFingerprint,
    choices: [{
      index: 0,
      message: { role: 'assistant', content: choice.content, refusal: null },
      logprobs: choice.logprobs ?? null,
      finish_reason: choice.finish,
    }],
    usage,
  };
}

function chunkHead({ id, created, model, systemFingerprint }: AnswerHead): Omit<Chunk, 'choices'> {
  return { id, object: 'chat.completion.chunk', created, model, system_fingerprint: systemFingerprint };
}
