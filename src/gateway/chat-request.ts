import { MeshnetError } from '../errors.ts';
import type { AnswerRequest } from './answer-request.ts';
import { checkAnswerSchema } from './answer-schema.ts';
import { chatBody, type ChatBody, type ChatMessage } from './chat-schema.ts';
import { refuseWanted, samplingOf, stopOf, streamOf, unknownFields } from './request-fields.ts';
import { requestInvalid } from './zod-error.ts';

/** Throws REQUEST_INVALID, UNSUPPORTED or LIMIT_EXCEEDED, with the field in `details.param`. */
export function parseChatRequest(body: Record<string, unknown>): AnswerRequest {
  const parsed = chatBody.safeParse(body);
  if (!parsed.success) {
    throw requestInvalid(parsed.error);
  }
  const request = parsed.data;
  refuseWanted([
    ['n', (request.n ?? 1) > 1],
    ['tools', (request.tools ?? []).length > 0],
    ['tool_choice', request.tool_choice != null && request.tool_choice !== 'none' && request.tool_choice !== 'auto'],
    ['functions', (request.functions ?? []).length > 0],
    ['function_call', request.function_call != null && request.function_call !== 'none' && request.function_call !== 'auto'],
    ['modalities', (request.modalities ?? []).some((modality) => modality !== 'text')],
    ['audio', request.audio != null],
    ['prediction', request.prediction != null],
    ['web_search_options', request.web_search_options != null],
  ]);
  if (request.top_logprobs != null && request.logprobs !== true) {
    throw new MeshnetError('REQUEST_INVALID', 'top_logprobs need logprobs', { details: { param: 'top_logprobs' } });
  }
  return {
    model: request.model,
    prompt: { messages: request.messages.map(templateMessage) },
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? undefined,
    sampling: samplingOf(request),
    stop: stopOf(request),
    answerSchema: answerSchemaOf(request),
    logprobs: request.logprobs === true ? request.top_logprobs ?? 0 : -1,
    ...streamOf(request),
    unknownFields: unknownFields(request, chatBody.shape),
  };
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
