import assert from 'node:assert/strict';
import OpenAI from 'openai';
import type { Gateway } from '../../src/gateway/gateway.ts';
import { listen } from './http-client.ts';
import { CARD, END, idsOf, refusal, ScriptedBackend, speak } from './scripted-backend.ts';

describe('gateway/openai-client', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;
  let client: OpenAI;
  const messages = [{ role: 'user' as const, content: 'Hi' }];

  beforeEach(async () => {
    backend = new ScriptedBackend();
    backend.script = () => speak('Grüße, 世界!');
    gateway = await listen(backend);
    client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'x', maxRetries: 0 });
  });

  afterEach(async () => {
    await gateway.stop();
  });

  it('completes', async () => {
    const completion = await client.chat.completions.create({ model: CARD.id, messages });
    assert.equal(completion.choices[0]?.message.content, 'Grüße, 世界!');
    assert.equal(completion.choices[0].finish_reason, 'stop');
    assert.equal(completion.usage?.completion_tokens, idsOf('Grüße, 世界!').length + 1);
    assert.match(completion._request_id ?? '', /^req_/);
  });

  it('streams, with usage', async () => {
    const stream = await client.chat.completions.create({
      model: CARD.id, messages, stream: true, stream_options: { include_usage: true },
    });
    let text = '';
    let usage: number | undefined;
    const reasons: string[] = [];
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      reasons.push(...chunk.choices.flatMap((choice) => choice.finish_reason ?? []));
      usage = chunk.usage?.total_tokens ?? usage;
    }
    assert.equal(text, 'Grüße, 世界!');
    assert.deepEqual(reasons, ['stop']);
    assert.ok((usage ?? 0) > idsOf(text).length);
  });

  it('accumulates a stream by its own helper', async () => {
    const final = await client.chat.completions.stream({ model: CARD.id, messages, logprobs: true }).finalChatCompletion();
    assert.equal(final.choices[0]?.message.content, 'Grüße, 世界!');
  });

  it('lists models and finds one', async () => {
    assert.deepEqual((await client.models.list()).data.map(({ id }) => id), [CARD.id]);
    assert.equal((await client.models.retrieve(CARD.id)).id, CARD.id);
  });

  it('gets typed errors with their code', async () => {
    await assert.rejects(client.chat.completions.create({ model: 'no-such', messages }), (err) => {
      return err instanceof OpenAI.NotFoundError && err.code === 'model_not_found' && err.param === 'model';
    });
    await assert.rejects(client.chat.completions.create({ model: CARD.id, messages, max_tokens: 100_000 }), (err) => {
      return err instanceof OpenAI.BadRequestError && err.code === 'context_length_exceeded';
    });
    await assert.rejects(client.chat.completions.create({ model: CARD.id, messages, n: 3 }), OpenAI.BadRequestError);
  });

  it('gets an error in place of a partial answer', async () => {
    backend.script = async function* () {
      yield { ids: idsOf('Half') };
      throw refusal('SEAM_TIMEOUT');
    };
    const stream = await client.chat.completions.create({ model: CARD.id, messages, stream: true });
    await assert.rejects(async () => {
      for await (const chunk of stream) {
        assert.equal(chunk.choices[0]?.finish_reason, null);
      }
    }, (err) => err instanceof OpenAI.APIError && err.code === 'seam_timeout');
  });

  it('retries what may pass, and is answered then', async () => {
    const patient = client.withOptions({ maxRetries: 2 });
    let attempts = 0;
    backend.admission = async () => {
      attempts++;
      if (attempts === 1) {
        throw refusal('WORKER_LOST', { retryAfterMs: 1 });
      }
    };
    assert.equal((await patient.chat.completions.create({ model: CARD.id, messages })).choices[0]?.message.content, 'Grüße, 世界!');
    assert.equal(attempts, 2);
  });

  it('cancels on every stage when it aborts a stream', async () => {
    backend.script = async function* () {
      while (true) {
        yield { ids: idsOf('x') };
        await new Promise((resolve) => { setImmediate(resolve); });
      }
    };
    const stream = await client.chat.completions.create({ model: CARD.id, messages, stream: true });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content === 'x') {
        break;
      }
    }
    await backend.left();
    assert.equal(backend.requests[0]?.ids.includes(END), false);
  });
});
