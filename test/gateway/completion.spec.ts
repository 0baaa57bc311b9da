import assert from 'node:assert/strict';
import OpenAI from 'openai';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { listen, post, readStream } from './http-client.ts';
import { CARD, END, idsOf, ScriptedBackend } from './scripted-backend.ts';

describe('gateway/completion', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;
  let client: OpenAI;
  const model = CARD.id;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    gateway = await listen(backend);
    client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'x', maxRetries: 0 });
  });

  afterEach(async () => {
    await gateway.stop();
  });

  it('continues a text, a list of one text and token ids, without a chat template', async () => {
    for (const prompt of ['Once', ['Once'], idsOf('Once'), [idsOf('Once')]]) {
      const completion = await client.completions.create({ model, prompt });
      assert.equal(completion.object, 'text_completion');
      assert.deepEqual(completion.choices, [{ text: 'Hello.', index: 0, logprobs: null, finish_reason: 'stop' }]);
      assert.equal(completion.usage?.prompt_tokens, 4);
    }
    assert.ok(backend.requests.every(({ ids, maxTokens }) => ids.length === 4 && maxTokens === 16));
    assert.equal(backend.texts.rendered.length, 0);
  });

  it('streams', async () => {
    const stream = await client.completions.create({ model, prompt: 'Once', stream: true, stream_options: { include_usage: true } });
    let text = '';
    let total: number | undefined;
    const reasons: unknown[] = [];
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? '';
      reasons.push(...chunk.choices.flatMap((choice) => (choice.finish_reason as string | null) ?? []));
      total = chunk.usage?.total_tokens ?? total;
    }
    assert.equal(text, 'Hello.');
    assert.deepEqual(reasons, ['stop']);
    assert.equal(total, 4 + 7);
  });

  it('gives log probabilities in the older form, with offsets that go on through a stream', async () => {
    backend.script = async function* () {
      const entry = (id: number): never => ({ logprob: -1, topIds: [id], topLogprobs: [-1] }) as never;
      yield { ids: idsOf('ab'), logprobs: idsOf('ab').map(entry) };
      yield { ids: idsOf('c'), logprobs: idsOf('c').map(entry) };
      yield { ids: [END], logprobs: [entry(END)], finish: 'end' };
    };
    const whole = await client.completions.create({ model, prompt: 'x', logprobs: 1 });
    assert.deepEqual(whole.choices[0]?.logprobs, {
      tokens: ['a', 'b', 'c'], token_logprobs: [-1, -1, -1], top_logprobs: [{ a: -1 }, { b: -1 }, { c: -1 }], text_offset: [0, 1, 2],
    });
    const { chunks } = await readStream(await post(`${gateway.url}/v1/completions`, { model, prompt: 'x', logprobs: 1, stream: true }));
    const offsets = (chunks as unknown as { choices: [{ logprobs: { text_offset: number[] } | null }] }[])
      .flatMap(({ choices: [choice] }) => choice.logprobs?.text_offset ?? []);
    assert.deepEqual(offsets, [0, 1, 2]);
  });

  it('refuses what it cannot honour or understand, with its place', async () => {
    const cases: [Record<string, unknown>, string][] = [
      [{ prompt: undefined }, 'prompt'], [{ prompt: '' }, 'prompt'], [{ prompt: [] }, 'prompt'], [{ prompt: ['a', 'b'] }, 'prompt'],
      [{ prompt: [-1] }, 'prompt[0]'], [{ prompt: [5000] }, 'prompt'], [{ echo: true }, 'echo'], [{ suffix: 'x' }, 'suffix'],
      [{ n: 2 }, 'n'], [{ best_of: 2 }, 'best_of'], [{ logprobs: 21 }, 'logprobs'], [{ max_tokens: 0 }, 'max_tokens'],
    ];
    for (const [fields, param] of cases) {
      const response = await post(`${gateway.url}/v1/completions`, { model, prompt: 'x', ...fields });
      assert.equal(response.status, 400, JSON.stringify(fields));
      assert.equal((await response.json() as { error: { param: string } }).error.param, param, JSON.stringify(fields));
    }
    assert.equal(backend.requests.length, 0);
  });
});
