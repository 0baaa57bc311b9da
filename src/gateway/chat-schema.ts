/** The body of `POST /v1/chat/completions`, field by field. */
import { z } from 'zod';
import { maxTokensField, REQUEST_LIMITS, sharedFields } from './request-fields.ts';

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

export const chatBody = z.looseObject({
  ...sharedFields,
  messages: z.array(message).min(1).max(REQUEST_LIMITS.messages),
  max_completion_tokens: maxTokensField.nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(REQUEST_LIMITS.topLogprobs).nullish(),
  response_format: responseFormat.nullish(),
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
