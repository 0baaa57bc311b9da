import { z } from 'zod';
import type { AnswerRequest, Prompt } from './answer-request.ts';
import { refuseWanted, REQUEST_LIMITS, samplingOf, sharedFields, stopOf, streamOf, unknownFields } from './request-fields.ts';
import { requestInvalid } from './zod-error.ts';

const id = z.number().int().min(0).max(2 ** 31 - 1);

/** The body of `POST /v1/completions`. A list of prompts may hold one. */
const completionBody = z.looseObject({
  ...sharedFields,
  prompt: z.union([
    z.string().min(1),
    z.array(id).min(1).max(REQUEST_LIMITS.promptIds),
    z.array(z.string().min(1)).min(1),
    z.array(z.array(id).min(1).max(REQUEST_LIMITS.promptIds)).min(1),
  ], { error: 'a text is expected, or a list of token ids' }),
  logprobs: z.number().int().min(0).max(REQUEST_LIMITS.topLogprobs).nullish(),
  best_of: z.number().int().min(1).nullish(),
  echo: z.boolean().nullish(),
  suffix: z.string().nullish(),
});

/** What the API says is usual. */
const DEFAULT_MAX_TOKENS = 16;

/** Throws REQUEST_INVALID or UNSUPPORTED, with the field in `details.param`. */
export function parseCompletionRequest(body: Record<string, unknown>): AnswerRequest {
  const parsed = completionBody.safeParse(body);
  if (!parsed.success) {
    throw requestInvalid(parsed.error);
  }
  const request = parsed.data;
  refuseWanted([
    ['prompt', Array.isArray(request.prompt) && request.prompt.length > 1 && typeof request.prompt[0] !== 'number'],
    ['n', (request.n ?? 1) > 1],
    ['best_of', (request.best_of ?? 1) > 1],
    ['echo', request.echo === true],
    ['suffix', (request.suffix ?? '') !== ''],
  ]);
  return {
    model: request.model,
    prompt: promptOf(request.prompt),
    maxTokens: request.max_tokens ?? DEFAULT_MAX_TOKENS,
    sampling: samplingOf(request),
    stop: stopOf(request),
    answerSchema: undefined,
    logprobs: request.logprobs ?? -1,
    ...streamOf(request),
    unknownFields: unknownFields(request, completionBody.shape),
  };
}

function promptOf(prompt: string | number[] | string[] | number[][]): Prompt {
  if (typeof prompt === 'string') {
    return { text: prompt };
  }
  const [first] = prompt;
  return typeof first === 'number' ? { ids: prompt as number[] } : promptOf(first as string | number[]);
}
