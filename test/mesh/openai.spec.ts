import assert from 'node:assert/strict';
import OpenAI, { APIError } from 'openai';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { ENDLESS } from './support/answer-stream.ts';
import { apiOf, covered, healthOf, idle, LAYERS, Mesh, MODEL, READY_MS, resolveModel } from './support/mesh.ts';
import { until } from './support/processes.ts';

const messages = [{ role: 'user' as const, content: 'Tell me about the sea.' }];

describe('mesh/openai', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  let shards: NodeProcess[];
  let client: OpenAI;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('openai');
    gateway = await mesh.gateway(await resolveModel());
    shards = await mesh.halves(gateway);
    client = new OpenAI({ baseURL: `${apiOf(gateway)}/v1`, apiKey: 'none', maxRetries: 0 });
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const ask = (fields: Partial<OpenAI.ChatCompletionCreateParamsNonStreaming> = {}): Promise<OpenAI.ChatCompletion> =>
    client.chat.completions.create({ model: MODEL, messages, temperature: 0, max_completion_tokens: 16, ...fields });
  const textOf = (completion: OpenAI.ChatCompletion): string => completion.choices[0]?.message.content ?? '';
  const refused = async (work: Promise<unknown>): Promise<APIError> => {
    const err = await work.then(() => undefined, (cause: unknown) => cause);
    assert.ok(err instanceof APIError, `refused, not ${String(err)}`);
    return err;
  };

  it('completes up to the wanted number of tokens', async () => {
    const completion = await ask();
    assert.notEqual(textOf(completion), '');
    assert.equal(completion.choices[0]?.finish_reason, 'length');
    const { prompt_tokens: prompt = 0, completion_tokens: answer, total_tokens: total } = completion.usage ?? {};
    assert.ok(prompt > 5);
    assert.equal(answer, 16);
    assert.equal(total, prompt + 16);
    await idle(...shards);
  });

  it('streams the very text that it completes, with usage and a route over both shards', async () => {
    const whole = await ask();
    const { data: stream, response } = await client.chat.completions.create({
      model: MODEL, messages, temperature: 0, max_completion_tokens: 16, stream: true, stream_options: { include_usage: true },
    }).withResponse();
    let text = '';
    let finish: string | undefined;
    let usage: OpenAI.CompletionUsage | undefined;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, textOf(whole));
    assert.equal(finish, 'length');
    assert.deepEqual(usage, whole.usage);
    const route = JSON.parse(response.headers.get('x-meshnet-route') ?? '') as { epoch: number; stages: object[] };
    assert.equal(route.epoch, 1);
    assert.deepEqual(route.stages, [
      { peer: shards[0]?.listening.peer_id, layers: [0, 4], path: 'libp2p' },
      { peer: shards[1]?.listening.peer_id, layers: [4, LAYERS], path: 'direct-grpc' },
    ]);
  });

  it('stops before a stop string', async () => {
    const whole = textOf(await ask());
    const stop = whole.slice(8, 11);
    const completion = await ask({ stop });
    assert.equal(textOf(completion), whole.slice(0, whole.indexOf(stop)));
    assert.equal(completion.choices[0]?.finish_reason, 'stop');
    await idle(...shards);
  });

  it('draws the same answer from the same seed', async () => {
    // One after another: who else is in the batch rounds differently, and a draw may fall on the other side.
    const first = textOf(await ask({ seed: 7, temperature: 1 }));
    assert.equal(textOf(await ask({ seed: 7, temperature: 1 })), first);
    assert.notEqual(textOf(await ask({ seed: 8, temperature: 1 })), first);
  });

  it('gives the probability of each token and of its alternatives', async () => {
    const completion = await ask({ logprobs: true, top_logprobs: 3 });
    const tokens = completion.choices[0]?.logprobs?.content ?? [];
    assert.equal(tokens.length, 16);
    assert.equal(Buffer.concat(tokens.map(({ bytes }) => Buffer.from(bytes ?? []))).toString(), textOf(completion));
    for (const { logprob, top_logprobs: top } of tokens) {
      assert.ok(logprob < 0);
      assert.equal(top.length, 3);
      // Greedy: the token itself is the likeliest.
      assert.equal(top[0]?.logprob, logprob);
      assert.ok(top.every((each, i) => i === 0 || each.logprob <= (top[i - 1]?.logprob ?? 0)));
    }
  });

  it('holds an answer to a JSON schema', async () => {
    const schema = {
      type: 'object', additionalProperties: false, required: ['depth', 'salt', 'name'],
      properties: { depth: { enum: ['shallow', 'deep'] }, salt: { type: 'boolean' }, name: { type: 'string', maxLength: 4 } },
    };
    const completion = await ask({
      max_completion_tokens: 200, response_format: { type: 'json_schema', json_schema: { name: 'sea', strict: true, schema } },
    });
    assert.equal(completion.choices[0]?.finish_reason, 'stop', textOf(completion));
    const found = JSON.parse(textOf(completion)) as { depth: string; salt: boolean; name: string };
    assert.deepEqual(Object.keys(found).sort(), ['depth', 'name', 'salt']);
    assert.ok(['shallow', 'deep'].includes(found.depth));
    assert.equal(typeof found.salt, 'boolean');
    assert.ok(found.name.length <= 4 * 2);
  });

  it('holds an answer to JSON at all', async () => {
    const completion = await ask({ max_completion_tokens: 48, response_format: { type: 'json_object' } });
    assert.match(textOf(completion), /^\s*\{/);
    if (completion.choices[0]?.finish_reason === 'stop') {
      assert.equal(typeof JSON.parse(textOf(completion)), 'object');
    }
  });

  it('refuses a model that it does not know', async () => {
    const err = await refused(ask({ model: 'no-such-model' }));
    assert.deepEqual([err.status, err.code, err.param], [404, 'model_not_found', 'model']);
  });

  it('refuses a prompt that is longer than a session', async () => {
    const err = await refused(ask({ messages: [{ role: 'user', content: 'sea '.repeat(6000) }] }));
    assert.deepEqual([err.status, err.code], [400, 'context_length_exceeded']);
    await idle(...shards);
  });

  it('refuses what is no JSON and what is no request', async () => {
    const post = async (body: string): Promise<{ status: number; error: { type: string; param: string | null } }> => {
      const headers = { 'content-type': 'application/json' };
      const response = await fetch(`${apiOf(gateway)}/v1/chat/completions`, { method: 'POST', headers, body });
      return { status: response.status, ...await response.json() as { error: { type: string; param: string | null } } };
    };
    for (const body of ['', '{', '[]', '"text"', '{"model": "test"}', '{"model": "test", "messages": [{"role": "user"}]}', '\u0000\u0001']) {
      const { status, error } = await post(body);
      assert.equal(status, 400, body);
      assert.equal(error.type, 'invalid_request_error', body);
    }
  });

  it('lists the model, covered', async () => {
    const { data } = await client.models.list();
    assert.deepEqual(data.map(({ id }) => id), [MODEL]);
    const model = await client.models.retrieve(MODEL) as OpenAI.Model & { meshnet: { coverage: string; privacy: string } };
    assert.equal(model.meshnet.coverage, 'complete');
    assert.match(model.meshnet.privacy, /can read prompts/);
  });

  it('frees every stage when the client leaves in mid-answer', async () => {
    const stream = await client.chat.completions.create({
      model: MODEL, messages, temperature: 0, max_completion_tokens: 2000, stream: true, ...ENDLESS,
    });
    let seen = 0;
    for await (const chunk of stream) {
      seen += chunk.choices[0]?.delta.content === undefined ? 0 : 1;
      if (seen === 3) {
        await Promise.all(shards.map((shard) => until('the shard has the lane', async () => {
          return (await healthOf(shard))?.shard?.lanes === 1 || undefined;
        })));
        stream.controller.abort();
      }
    }
    await idle(...shards);
    await until('the gateway has no answer', async () => (await healthOf(gateway))?.answers === 0 || undefined);
  });

  const together = async (count: number, asker: OpenAI, tokens = 12): Promise<void> => {
    const completions = await Promise.all(Array.from({ length: count }, (_, i) => asker.chat.completions.create({
      model: MODEL, messages: [{ role: 'user', content: `Count to ${i + 1}.` }], temperature: 0, max_completion_tokens: tokens + i,
    })));
    completions.forEach((completion, i) => assert.equal(completion.usage?.completion_tokens, tokens + i));
    assert.equal(new Set(completions.map(textOf)).size, count);
  };

  it('answers twelve clients at once, each its own', async () => {
    await together(12, client);
    await idle(...shards);
  });

  /** Codes of what 24 clients were refused, which are more than a shard has sequence ids. */
  const crowd = async (asker: OpenAI): Promise<string[]> => {
    const codes: string[] = [];
    const watching: typeof fetch = async (...request) => {
      const response = await fetch(...request);
      if (!response.ok) {
        const { error } = await response.clone().json() as { error: { code: string } };
        codes.push(error.code);
      }
      return response;
    };
    await together(24, asker.withOptions({ fetch: watching }), 30);
    await idle(...shards);
    return codes;
  };

  it('lets clients wait for which there is no room, and answers each', async () => {
    assert.deepEqual(await crowd(client), []);
  });

  it('sends them away until there is where nobody may wait, and their library comes back', async () => {
    const hurried = await mesh.gateway(await resolveModel(), 'hurried', [
      '--bootstrap', gateway.listening.addresses[0] ?? '', '--config', mesh.apiConfig('hurried', 'maxQueued = 0'),
    ]);
    await covered(hurried);
    const codes = new Set(await crowd(client.withOptions({ baseURL: `${apiOf(hurried)}/v1`, maxRetries: 50 })));
    assert.ok(codes.delete('rate_limit_exceeded'));
    // A place that was free when the room was looked at may have been taken by the time it is asked for.
    codes.delete('no_capacity');
    assert.deepEqual(codes, new Set());
  });

  it('answers on after all of this', async () => {
    assert.equal(textOf(await ask()), textOf(await ask()));
    await idle(...shards);
  });
});
