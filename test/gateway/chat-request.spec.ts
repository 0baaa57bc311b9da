import assert from 'node:assert/strict';
import fc from 'fast-check';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { parseChatRequest } from '../../src/gateway/chat-request.ts';

const messages = [{ role: 'user', content: 'Hi' }];
const parse = (fields: Record<string, unknown>): ReturnType<typeof parseChatRequest> => parseChatRequest({ model: 'm', messages, ...fields });

function assertRefused(fields: Record<string, unknown>, param: string, code: ErrorCode = 'REQUEST_INVALID'): void {
  assert.throws(() => parse(fields), (err) => {
    assert.ok(isMeshnetError(err, code), String(err));
    assert.equal(err.details.param, param);
    return true;
  }, JSON.stringify(fields));
}

describe('gateway/chat-request', () => {
  it('fills in what the API says is usual', () => {
    const { sampling, ...request } = parse({});
    assert.deepEqual(request, {
      model: 'm', prompt: { messages }, maxTokens: undefined, stop: [], answerSchema: undefined, logprobs: -1, stream: false,
      includeUsage: false, unknownFields: [],
    });
    const { seed, ...rest } = sampling;
    assert.deepEqual(rest, {
      temperature: 1, topP: 1, topK: 0, minP: 0, presencePenalty: 0, frequencyPenalty: 0, logitBias: [],
    });
    assert.notEqual(seed, parse({}).sampling.seed);
  });

  it('takes every field that it honours, and null for none', () => {
    const request = parse({
      max_tokens: 7, max_completion_tokens: 9, temperature: 0, top_p: 0, seed: -1, stop: ['a', 'b'], stream: true,
      stream_options: { include_usage: true }, logprobs: true, top_logprobs: 3, logit_bias: { 17: -100 }, n: 1, tools: [],
    });
    assert.equal(request.maxTokens, 9);
    assert.equal(request.sampling.temperature, 0);
    assert.ok(request.sampling.topP > 0 && request.sampling.topP < 1e-5);
    assert.equal(request.sampling.seed, 2n ** 64n - 1n);
    assert.deepEqual(request.sampling.logitBias, [{ token: 17, bias: -100 }]);
    assert.deepEqual(request.stop, ['a', 'b']);
    assert.equal(request.logprobs, 3);
    assert.equal(request.includeUsage, true);
    const nothing = Object.fromEntries(['max_tokens', 'temperature', 'stop', 'stream', 'stream_options', 'n', 'tools', 'response_format']
      .map((field) => [field, null]));
    assert.equal(parse(nothing).maxTokens, undefined);
  });

  it('writes messages as chat templates read them', () => {
    const call = { id: 'c1', type: 'function', function: { name: 'f', arguments: '{}' } };
    const request = parse({ messages: [
      { role: 'developer', content: 'Be brief.', name: null },
      { role: 'user', content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }], name: 'Ann' },
      { role: 'assistant', content: null },
      { role: 'assistant', tool_calls: [call] },
      { role: 'tool', content: 'x', tool_call_id: 'c1' },
      { role: 'assistant', content: [{ type: 'refusal', refusal: 'no' }] },
    ] });
    assert.deepEqual(request.prompt, { messages: [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }], name: 'Ann' },
      { role: 'assistant', content: '' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', content: 'x', tool_call_id: 'c1' },
      { role: 'assistant', content: [{ type: 'text', text: 'no' }] },
    ] });
  });

  it('names the field that is wrong, however deep', () => {
    assertRefused({ model: undefined }, 'model');
    assertRefused({ model: 5 }, 'model');
    assertRefused({ messages: undefined }, 'messages');
    assertRefused({ messages: [] }, 'messages');
    assertRefused({ messages: 'Hi' }, 'messages');
    assertRefused({ messages: [{ role: 'king', content: 'x' }] }, 'messages[0].role');
    assertRefused({ messages: [{ content: 'x' }] }, 'messages[0].role');
    assertRefused({ messages: [...messages, { role: 'user' }] }, 'messages[1].content');
    assertRefused({ messages: [{ role: 'user', content: 5 }] }, 'messages[0].content');
    assertRefused({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] }, 'messages[0].content[0].type');
    assertRefused({ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0].text');
    assertRefused({ messages: Array.from({ length: 2001 }, () => messages[0]) }, 'messages');
    assertRefused({ temperature: 3 }, 'temperature');
    assertRefused({ temperature: '1' }, 'temperature');
    assertRefused({ top_p: -0.1 }, 'top_p');
    assertRefused({ max_tokens: 0 }, 'max_tokens');
    assertRefused({ max_completion_tokens: 1.5 }, 'max_completion_tokens');
    assertRefused({ seed: 1.5 }, 'seed');
    assertRefused({ stop: Array.from({ length: 17 }, () => 'x') }, 'stop');
    assertRefused({ stop: ['x', ''] }, 'stop[1]');
    assertRefused({ stop: 'é'.repeat(129) }, 'stop');
    assertRefused({ logprobs: true, top_logprobs: 21 }, 'top_logprobs');
    assertRefused({ top_logprobs: 2 }, 'top_logprobs');
    assertRefused({ stream_options: { include_usage: true } }, 'stream_options');
    assertRefused({ logit_bias: { x: 1 } }, 'logit_bias.x');
    assertRefused({ response_format: { type: 'yaml' } }, 'response_format.type');
    assertRefused({ response_format: { type: 'json_schema' } }, 'response_format.json_schema');
    assertRefused({ n: 0 }, 'n');
  });

  it('refuses what it cannot honour and never leaves it undone', () => {
    assertRefused({ n: 2 }, 'n', 'UNSUPPORTED');
    assertRefused({ tools: [{ type: 'function', function: { name: 'f' } }] }, 'tools', 'UNSUPPORTED');
    assertRefused({ tool_choice: 'required' }, 'tool_choice', 'UNSUPPORTED');
    assertRefused({ functions: [{ name: 'f' }] }, 'functions', 'UNSUPPORTED');
    assertRefused({ modalities: ['text', 'audio'] }, 'modalities', 'UNSUPPORTED');
    assertRefused({ prediction: { type: 'content', content: 'x' } }, 'prediction', 'UNSUPPORTED');
    assertRefused({ web_search_options: {} }, 'web_search_options', 'UNSUPPORTED');
  });

  it('reports fields that nobody knows, but not those that change nothing', () => {
    assert.deepEqual(parse({ user: 'u', metadata: {}, store: false, banana: 1 }).unknownFields, ['banana']);
  });

  it('holds answers to a schema, and refuses one that it cannot keep', () => {
    const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'], additionalProperties: false };
    const format = (inner: unknown): object => ({ response_format: { type: 'json_schema', json_schema: { name: 's', schema: inner } } });
    assert.equal(parse({ response_format: { type: 'json_object' } }).answerSchema, '{}');
    assert.equal(parse({ response_format: { type: 'text' } }).answerSchema, undefined);
    assert.deepEqual(JSON.parse(parse({ ...format(schema) }).answerSchema ?? ''), schema);
    assertRefused({ ...format({ type: 'string', pattern: 'a+' }) }, 'response_format.json_schema.schema.pattern', 'UNSUPPORTED');
  });

  it('throws nothing but typed errors that name a field', () => {
    const fields = fc.dictionary(fc.constantFrom('model', 'messages', 'stop', 'seed', 'logit_bias', 'response_format', 'n', 'tools'),
      fc.jsonValue({ maxDepth: 4 }));
    fc.assert(fc.property(fields, (body) => {
      try {
        parse(body);
      } catch (err) {
        assert.ok(isMeshnetError(err), String(err));
        assert.equal(typeof err.details.param, 'string');
      }
    }));
  });
});
