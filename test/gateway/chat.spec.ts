import assert from 'node:assert/strict';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { chatBody, listen, post, readStream } from './http-client.ts';
import { CARD, END, idsOf, refusal, ScriptedBackend, speak, untilAborted } from './scripted-backend.ts';

interface Choice {
  index: number;
  delta: { role?: string; content?: string };
  message: { content: string };
  finish_reason: string | null;
  logprobs: { content: { token: string; logprob: number; bytes: number[]; top_logprobs: object[] }[] } | null;
}

interface Answer {
  id: string;
  object: string;
  created: number;
  model: string;
  system_fingerprint: string;
  choices: [Choice];
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number; prompt_tokens_details: object } | null;
  error?: { message: string; type: string; param: string | null; code: string | null };
}

describe('gateway/chat', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;
  let url: string;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    gateway = await listen(backend, { pingMs: 20 });
    url = `${gateway.url}/v1/chat/completions`;
  });

  afterEach(async () => {
    await gateway.stop();
  });

  const complete = async (fields: Record<string, unknown> = {}): Promise<Answer> => {
    const response = await post(url, chatBody(fields));
    assert.equal(response.status, 200);
    return await response.json() as Answer;
  };

  it('answers in one piece, with usage', async () => {
    backend.cachedTokens = 4;
    const answer = await complete({ max_tokens: 50, temperature: 0, seed: 3 });
    const promptTokens = JSON.stringify(chatBody().messages).length;
    assert.equal(answer.object, 'chat.completion');
    assert.match(answer.id, /^chatcmpl-\w+$/);
    assert.ok(Number.isInteger(answer.created));
    assert.deepEqual(answer.choices, [{
      index: 0, message: { role: 'assistant', content: 'Hello.', refusal: null }, logprobs: null, finish_reason: 'stop',
    }]);
    assert.deepEqual(answer.usage, {
      prompt_tokens: promptTokens, completion_tokens: 7, total_tokens: promptTokens + 7, prompt_tokens_details: { cached_tokens: 4 },
    });
    const [request] = backend.requests;
    assert.equal(request?.maxTokens, 50);
    assert.equal(request.sampling.seed, 3n);
    assert.equal(request.logprobs, -1);
  });

  it('streams chunks of one shape, ending with reason, usage and [DONE]', async () => {
    const response = await post(url, chatBody({ stream: true, stream_options: { include_usage: true } }));
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    assert.equal(response.headers.get('cache-control'), 'no-cache');
    assert.equal(response.headers.get('x-accel-buffering'), 'no');
    assert.deepEqual(JSON.parse(response.headers.get('x-meshnet-route') ?? ''), {
      epoch: 1, stages: [{ peer: 'peerA', layers: [0, 2], path: 'direct-grpc' }, { peer: 'peerB', layers: [2, 4], path: 'relay' }],
    });
    const { chunks, done } = await readStream(response);
    const answers = chunks as unknown as Answer[];
    assert.equal(done, true);
    const [first] = answers;
    for (const { id, object, created, model, system_fingerprint } of answers) {
      assert.deepEqual([id, object, created, model, system_fingerprint],
        [first?.id, 'chat.completion.chunk', first?.created, CARD.id, `fp_${CARD.digest.slice(0, 16)}`]);
    }
    assert.deepEqual(first?.choices, [{ index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }]);
    const usage = answers.pop();
    assert.deepEqual(usage?.choices, []);
    assert.equal(usage?.usage?.completion_tokens, 7);
    assert.deepEqual(answers.at(-1)?.choices, [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }]);
    assert.equal(answers.map(({ choices: [choice] }) => choice.delta.content ?? '').join(''), 'Hello.');
    assert.ok(answers.every((answer) => answer.usage === null));
  });

  it('sends no usage in a stream that did not ask for it', async () => {
    const { chunks } = await readStream(await post(url, chatBody({ stream: true })));
    assert.ok(chunks.every((chunk) => !('usage' in chunk)));
  });

  it('never cuts a character in a stream and leaves out the stop string', async () => {
    backend.script = () => speak('naïve 🦊 — stop here');
    const { chunks } = await readStream(await post(url, chatBody({ stream: true, stop: ['stop'] })));
    const texts = (chunks as unknown as Answer[]).map(({ choices: [choice] }) => choice.delta.content ?? '');
    assert.equal(texts.join(''), 'naïve 🦊 — ');
    assert.ok(texts.every((text) => !text.includes('\ufffd')));
    await backend.left();
  });

  it('says length when max_tokens cut the answer', async () => {
    backend.script = async function* ({ maxTokens }) {
      yield { ids: idsOf('x'.repeat(maxTokens)), finish: 'max_tokens' };
    };
    const answer = await complete({ max_completion_tokens: 5, max_tokens: 9 });
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.choices[0].message.content, 'xxxxx');
    assert.equal(answer.usage?.completion_tokens, 5);
  });

  it('gives log probabilities, whole and streamed', async () => {
    backend.script = async function* () {
      const entry = (id: number): object => ({ logprob: -0.5, topIds: [id, 66], topLogprobs: [-0.5, Number.NEGATIVE_INFINITY] });
      yield { ids: idsOf('A'), logprobs: [entry(65)] as never };
      yield { ids: [...idsOf('é'), END], logprobs: [entry(0xc3), entry(0xa9), entry(END)] as never, finish: 'end' };
    };
    const whole = (await complete({ logprobs: true, top_logprobs: 2 })).choices[0].logprobs?.content ?? [];
    assert.deepEqual(whole[0], {
      token: 'A', logprob: -0.5, bytes: [65],
      top_logprobs: [{ token: 'A', logprob: -0.5, bytes: [65] }, { token: 'B', logprob: -9999, bytes: [66] }],
    });
    assert.deepEqual(whole.map(({ bytes }) => bytes), [[65], [0xc3], [0xa9]]);
    assert.equal(backend.requests[0]?.logprobs, 2);
    const { chunks } = await readStream(await post(url, chatBody({ stream: true, logprobs: true, top_logprobs: 2 })));
    assert.deepEqual((chunks as unknown as Answer[]).flatMap(({ choices: [choice] }) => choice.logprobs?.content ?? []), whole);
  });

  it('turns a response format into a grammar', async () => {
    await complete({ response_format: { type: 'json_object' } });
    await complete({ response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' } } } });
    await complete();
    assert.deepEqual(backend.texts.schemas, ['{}', '{"type":"object"}']);
    assert.deepEqual(backend.requests.map(({ grammar }) => grammar), ['root ::= "2"', 'root ::= "17"', undefined]);
  });

  it('refuses a prompt or an answer that does not fit, and never cuts a prompt', async () => {
    for (const fields of [{ messages: [{ role: 'user', content: 'x'.repeat(600) }] }, { max_tokens: 500 }]) {
      const response = await post(url, chatBody(fields));
      const { error } = await response.json() as Answer;
      assert.equal(response.status, 400);
      assert.equal(error?.code, 'context_length_exceeded');
      assert.equal(error.param, 'messages');
    }
    assert.equal(backend.requests.length, 0);
  });

  it('refuses a bias for a token that the model does not have', async () => {
    const response = await post(url, chatBody({ logit_bias: { 65: 1, 5000: -1 } }));
    assert.equal(response.status, 400);
    assert.equal((await response.json() as Answer).error?.param, 'logit_bias');
    await complete({ logit_bias: { 65: 1 } });
    assert.deepEqual(backend.requests.map(({ sampling }) => sampling.logitBias), [[{ token: 65, bias: 1 }]]);
  });

  it('refuses before the headers what admission refuses, streaming or not', async () => {
    for (const [code, status, retry] of [['NO_ROUTE', 503, '5'], ['SEAM_TIMEOUT', 504, null], ['CONTEXT_FULL', 400, null]] as const) {
      backend.refusal = refusal(code);
      for (const stream of [false, true]) {
        const response = await post(url, chatBody({ stream }));
        assert.equal(response.status, status);
        assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8');
        assert.equal(response.headers.get('retry-after'), retry);
        await response.arrayBuffer();
      }
    }
    backend.refusal = refusal('WORKER_LOST', { retryAfterMs: 9500 });
    assert.equal((await post(url, chatBody())).headers.get('retry-after'), '10');
  });

  it('tells a failure in mid-stream as an error object, and does not say [DONE]', async () => {
    backend.script = async function* () {
      yield { ids: idsOf('Half') };
      throw refusal('WORKER_LOST', { stage: 1 });
    };
    const { chunks, done } = await readStream(await post(url, chatBody({ stream: true })));
    const { error } = chunks.at(-1) as unknown as Answer;
    assert.equal(error?.code, 'worker_lost');
    assert.equal(error.type, 'server_error');
    assert.equal(done, false);
    const whole = await post(url, chatBody());
    assert.equal(whole.status, 503);
  });

  it('tells a generation that ends without a reason as a failure', async () => {
    backend.script = async function* () {
      yield { ids: idsOf('Half') };
    };
    const { chunks, done } = await readStream(await post(url, chatBody({ stream: true })));
    assert.equal((chunks.at(-1) as unknown as Answer).error?.code, 'stream_ended');
    assert.equal(done, false);
  });

  it('pings a stream that is silent, before its first token too', async () => {
    const gate = Promise.withResolvers<void>();
    backend.script = async function* () {
      await gate.promise;
      yield { ids: idsOf('late') };
      yield { ids: [END], finish: 'end' };
    };
    const response = await post(url, chatBody({ stream: true }));
    const reader = (response.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while ((text.match(/: ping\n\n/g) ?? []).length < 3) {
      const { value, done } = await reader.read();
      assert.equal(done, false);
      text += value ?? '';
    }
    assert.doesNotMatch(text, /late/);
    gate.resolve();
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      text += next.value;
    }
    assert.match(text, /\[DONE\]\n\n$/);
  });

  it('ends an answer whose next token does not come', async () => {
    await gateway.stop();
    gateway = await listen(backend, { idleMs: 30 });
    backend.script = async function* (_request, signal) {
      yield { ids: idsOf('x') };
      await untilAborted(signal);
    };
    const { chunks } = await readStream(await post(`${gateway.url}/v1/chat/completions`, chatBody({ stream: true })));
    assert.equal((chunks.at(-1) as unknown as Answer).error?.code, 'deadline_exceeded');
    await backend.left();
  });

  it('gives a route that is not open in time back', async () => {
    await gateway.stop();
    gateway = await listen(backend, { admitMs: 30 });
    backend.admission = untilAborted;
    const response = await post(`${gateway.url}/v1/chat/completions`, chatBody());
    assert.equal(response.status, 504);
    await backend.left();
  });
});
