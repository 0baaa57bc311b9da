import { randomBytes } from 'node:crypto';
import { MeshnetError } from '../errors.ts';
import { checkAnswerSchema } from './answer-schema.ts';
import type { Sampling } from './backend.ts';
import { chatBody, IGNORED_FIELDS, type ChatBody, type ChatMessage } from './chat-schema.ts';
import { requestInvalid } from './zod-error.ts';

/** A chat request that has been understood: everything in it can be done, if the model and the mesh allow it. */
export interface ChatRequest {
  readonly model: string;
  /** As a chat template reads them. */
  readonly messages: readonly Record<string, unknown>[];
  /** What the client named; undefined for as much as is usual. */
  readonly maxTokens: number | undefined;
  readonly sampling: Sampling;
  readonly stop: readonly string[];
  /** JSON schema that the answer has to keep; `{}` for any object. */
  readonly answerSchema: string | undefined;
  /** Alternatives per token; -1 for no logprobs. */
  readonly logprobs: number;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  /** Fields that this version does not know. */
  readonly unknownFields: readonly string[];
}

/** Throws REQUEST_INVALID, UNSUPPORTED or LIMIT_EXCEEDED, with the field in `details.param`. */
export function parseChatRequest(body: Record<string, unknown>): ChatRequest {
  const parsed = chatBody.safeParse(body);
  if (!parsed.success) {
    throw requestInvalid(parsed.error);
  }
  const request = parsed.data;
  refuseUnsupported(request);
  if (request.stream_options != null && request.stream !== true) {
    throw new MeshnetError('REQUEST_INVALID', 'stream_options need stream', { details: { param: 'stream_options' } });
  }
  if (request.top_logprobs != null && request.logprobs !== true) {
    throw new MeshnetError('REQUEST_INVALID', 'top_logprobs need logprobs', { details: { param: 'top_logprobs' } });
  }
  return {
    model: request.model,
    messages: request.messages.map(templateMessage),
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? undefined,
    sampling: samplingOf(request),
    stop: typeof request.stop === 'string' ? [request.stop] : request.stop ?? [],
    answerSchema: answerSchemaOf(request),
    logprobs: request.logprobs === true ? request.top_logprobs ?? 0 : -1,
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    unknownFields: Object.keys(request).filter((key) => !(key in chatBody.shape) && !IGNORED_FIELDS.has(key)),
  };
}

/** Nothing that changes the answer is accepted and then left undone. */
function refuseUnsupported(request: ChatBody): void {
  const wanted: [param: string, wanted: boolean][] = [
    ['n', (request.n ?? 1) > 1],
    ['tools', (request.tools ?? []).length > 0],
    ['tool_choice', request.tool_choice != null && request.tool_choice !== 'none' && request.tool_choice !== 'auto'],
    ['functions', (request.functions ?? []).length > 0],
    ['function_call', request.function_call != null && request.function_call !== 'none' && request.function_call !== 'auto'],
    ['modalities', (request.modalities ?? []).some((modality) => modality !== 'text')],
    ['audio', request.audio != null],
    ['prediction', request.prediction != null],
    ['web_search_options', request.web_search_options != null],
  ];
  const param = wanted.find(([, isWanted]) => isWanted)?.[0];
  if (param !== undefined) {
    throw new MeshnetError('UNSUPPORTED', `${param} cannot be honoured`, { details: { param } });
  }
}

function templateMessage(message: ChatMessage): Record<string, unknown> {
  if (message.role === 'tool') {
    return { role: 'tool', content: message.content, tool_call_id: message.tool_call_id };
  }
  const name = message.name == null ? {} : { name: message.name };
  if (message.role === 'assistant') {
    const calls = message.tool_calls ?? undefined;
    const content = assistantText(message) ?? (calls === undefined ? '' : null);
    return { role: 'assistant', content, ...name, ...(calls && { tool_calls: calls }) };
  }
  return { role: message.role === 'developer' ? 'system' : message.role, content: message.content, ...name };
}

function assistantText({ content, refusal }: Extract<ChatMessage, { role: 'assistant' }>): unknown {
  return Array.isArray(content)
    ? content.map((part) => ({ type: 'text', text: part.type === 'text' ? part.text : part.refusal }))
    : content ?? refusal;
}

/** Smaller than any token's share: only the likeliest one is left, as with 0, which our samplers read as off. */
const TOP_P_MIN = 1e-6;

function samplingOf(request: ChatBody): Sampling {
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

function answerSchemaOf(request: ChatBody): string | undefined {
  const format = request.response_format;
  if (format == null || format.type === 'text') {
    return undefined;
  }
  if (format.type === 'json_object') {
    return '{}';
  }
  checkAnswerSchema(format.json_schema.schema, 'response_format.json_schema.schema');
  return JSON.stringify(format.json_schema.schema);
}
