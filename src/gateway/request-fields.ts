/** Fields that the requests of every API have. */
import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { MeshnetError } from '../errors.ts';
import type { Sampling } from './backend.ts';

/** Limits of one request. Bytes where nothing else is said. */
export const REQUEST_LIMITS = Object.freeze({
  messages: 2000,
  partsPerMessage: 256,
  toolCallsPerMessage: 128,
  stops: 16,
  stopBytes: 256,
  nameCharacters: 256,
  modelCharacters: 256,
  topLogprobs: 20,
  logitBias: 1024,
  promptIds: 1 << 20,
});

const stop = z.string().min(1).refine((text) => Buffer.byteLength(text) <= REQUEST_LIMITS.stopBytes, {
  error: `a stop string has at most ${REQUEST_LIMITS.stopBytes} bytes`,
});

export const maxTokensField = z.number().int().min(1).max(2 ** 31 - 1);

export const sharedFields = {
  model: z.string().min(1).max(REQUEST_LIMITS.modelCharacters),
  max_tokens: maxTokensField.nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_k: z.number().int().min(0).max(1_000_000).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  seed: z.number().int().nullish(),
  logit_bias: z.record(z.string().regex(/^\d{1,9}$/, { error: 'a token id is expected' }), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= REQUEST_LIMITS.logitBias, { error: `at most ${REQUEST_LIMITS.logitBias} tokens` })
    .nullish(),
  stop: z.union([stop, z.array(stop).max(REQUEST_LIMITS.stops)]).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.object({ include_usage: z.boolean().nullish(), include_obfuscation: z.boolean().nullish() }).nullish(),
  n: z.number().int().min(1).nullish(),
};

const shared = z.object(sharedFields);
export type SharedFields = z.output<typeof shared>;

/** Fields that may be there and change nothing about the answer. */
const IGNORED: ReadonlySet<string> = new Set([
  'metadata', 'parallel_tool_calls', 'prompt_cache_key', 'prompt_cache_retention', 'reasoning_effort', 'safety_identifier',
  'service_tier', 'store', 'user', 'verbosity',
]);

/** Those of a body that neither its schema nor the API knows. */
export function unknownFields(body: object, known: object): string[] {
  return Object.keys(body).filter((key) => !(key in known) && !IGNORED.has(key));
}

/** Throws UNSUPPORTED for the first field that is wanted: nothing that changes an answer is accepted and left undone. */
export function refuseWanted(wanted: readonly (readonly [param: string, isWanted: boolean])[]): void {
  const param = wanted.find(([, isWanted]) => isWanted)?.[0];
  if (param !== undefined) {
    throw new MeshnetError('UNSUPPORTED', `${param} cannot be honoured`, { details: { param } });
  }
}

/** Throws REQUEST_INVALID when there are options for a stream that was not asked for. */
export function streamOf({ stream, stream_options: options }: SharedFields): { stream: boolean; includeUsage: boolean } {
  if (options != null && stream !== true) {
    throw new MeshnetError('REQUEST_INVALID', 'stream_options need stream', { details: { param: 'stream_options' } });
  }
  return { stream: stream === true, includeUsage: options?.include_usage === true };
}

export function stopOf({ stop }: SharedFields): string[] {
  return typeof stop === 'string' ? [stop] : stop ?? [];
}

/** Smaller than any token's share: only the likeliest one is left, as with 0, which our samplers read as off. */
const TOP_P_MIN = 1e-6;

export function samplingOf(request: SharedFields): Sampling {
  return {
    temperature: request.temperature ?? 1,
    topP: Math.max(request.top_p ?? 1, TOP_P_MIN),
    topK: request.top_k ?? 0,
    minP: request.min_p ?? 0,
    presencePenalty: request.presence_penalty ?? 0,
    frequencyPenalty: request.frequency_penalty ?? 0,
    seed: request.seed == null ? randomBytes(8).readBigUInt64LE() : BigInt.asUintN(64, BigInt(request.seed)),
    logitBias: Object.entries(request.logit_bias ?? {}).map(([token, bias]) => ({ token: Number(token), bias })),
  };
}
