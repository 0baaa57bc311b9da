/** The body of `POST /v1/chat/completions`, field by field. */
import { z } from 'zod';

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
});

const bytesAtMost = (limit: number) => (text: string): boolean => Buffer.byteLength(text) <= limit;

const textPart = z.object({ type: z.literal('text', { error: 'only parts of type text can be read' }), text: z.string() });
const refusalPart = z.object({ type: z.literal('refusal'), refusal: z.string() });
const content = z.union([z.string(), z.array(textPart).min(1).max(REQUEST_LIMITS.partsPerMessage)]);
const assistantContent = z.union([
  z.string(),
  z.array(z.discriminatedUnion('type', [textPart, refusalPart])).min(1).max(REQUEST_LIMITS.partsPerMessage),
]);
const name = z.string().min(1).max(REQUEST_LIMITS.nameCharacters);

const toolCall = z.object({
  id: z.string().min(1).max(REQUEST_LIMITS.nameCharacters),
  type: z.literal('function'),
  function: z.object({ name, arguments: z.string() }),
});

const message = z.discriminatedUnion('role', [
  z.object({ role: z.enum(['system', 'developer']), content, name: name.nullish() }),
  z.object({ role: z.literal('user'), content, name: name.nullish() }),
  z.object({
    role: z.literal('assistant'),
    content: assistantContent.nullish(),
    refusal: z.string().nullish(),
    name: name.nullish(),
    tool_calls: z.array(toolCall).min(1).max(REQUEST_LIMITS.toolCallsPerMessage).nullish(),
  }),
  z.object({ role: z.literal('tool'), content, tool_call_id: name }),
]);

const stop = z.string().min(1).refine(bytesAtMost(REQUEST_LIMITS.stopBytes), {
  error: `a stop string has at most ${REQUEST_LIMITS.stopBytes} bytes`,
});

const responseFormat = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text') }),
  z.object({ type: z.literal('json_object') }),
  z.object({
    type: z.literal('json_schema'),
    json_schema: z.object({
      name: z.string().max(64).nullish(),
      description: z.string().nullish(),
      strict: z.boolean().nullish(),
      schema: z.record(z.string(), z.unknown()),
    }),
  }),
]);

const maxTokens = z.number().int().min(1).max(2 ** 31 - 1);

export const chatBody = z.looseObject({
  model: z.string().min(1).max(REQUEST_LIMITS.modelCharacters),
  messages: z.array(message).min(1).max(REQUEST_LIMITS.messages),
  max_completion_tokens: maxTokens.nullish(),
  max_tokens: maxTokens.nullish(),
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
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(REQUEST_LIMITS.topLogprobs).nullish(),
  response_format: responseFormat.nullish(),
  n: z.number().int().min(1).nullish(),
  tools: z.array(z.unknown()).nullish(),
  tool_choice: z.unknown().optional(),
  functions: z.array(z.unknown()).nullish(),
  function_call: z.unknown().optional(),
  modalities: z.array(z.string()).nullish(),
  audio: z.unknown().optional(),
  prediction: z.unknown().optional(),
  web_search_options: z.unknown().optional(),
});

export type ChatBody = z.output<typeof chatBody>;
export type ChatMessage = z.output<typeof message>;

/** Fields that may be there and change nothing about the answer. */
export const IGNORED_FIELDS: ReadonlySet<string> = new Set([
  'metadata', 'parallel_tool_calls', 'prompt_cache_key', 'prompt_cache_retention', 'reasoning_effort', 'safety_identifier',
  'service_tier', 'store', 'user', 'verbosity',
]);
