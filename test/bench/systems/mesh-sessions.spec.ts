import assert from 'node:assert/strict';
import { setImmediate } from 'node:timers/promises';
import { answer, answerBeside, answerTwice, Request, type GeneratingNode } from '../../../bench/systems/mesh-sessions.ts';
import type { Generation, GenerationRequest, TokenEvent } from '../../../src/gateway/backend.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const TIMES = [{ queueUs: 1000, computeUs: 15_000, serializeUs: 500 }, { queueUs: 3000, computeUs: 17_000, serializeUs: 1500 }];

interface Faked {
  /** The prompt's first id tells which session it is. */
  readonly tokens: (session: number, request: GenerationRequest) => AsyncIterable<TokenEvent>;
}

/** Gives routes whose tokens a test makes, and keeps which of them were left before their end. */
function nodeOf({ tokens }: Faked): { node: GeneratingNode; left: number[]; asked: GenerationRequest[] } {
  const left: number[] = [];
  const asked: GenerationRequest[] = [];
  const node: GeneratingNode = {
    generate: (request) => {
      asked.push(request);
      const session = request.ids[0] ?? 0;
      const stages = (['libp2p', 'direct-grpc'] as const).map((path, i) => ({ peer: `${i}`, layers: [i, i + 1] as [number, number], path }));
      const { promise: closed, resolve: close } = Promise.withResolvers<void>();
      async function* all(): AsyncGenerator<TokenEvent> {
        let whole = false;
        try {
          yield* tokens(session, request);
          whole = true;
        } finally {
          left.push(...whole ? [] : [session]);
          close();
        }
      }
      const generation: Generation = { route: { epoch: 1, stages }, cachedTokens: 0, closed, [Symbol.asyncIterator]: all };
      return Promise.resolve(generation);
    },
  };
  return { node, left, asked };
}

/** As many as were asked for, each in a turn of its own. */
async function* counted(session: number, { maxTokens }: GenerationRequest): AsyncGenerator<TokenEvent> {
  for (let i = 0; i < maxTokens; i++) {
    await setImmediate();
    yield { ids: [session * 100 + i], times: TIMES, ...i + 1 === maxTokens ? { finish: 'max_tokens' as const } : {} };
  }
}

function request(more: object): Request {
  return Request.parse({ prompts: [[1, 1], [2, 2]], output: 3, sampling: null, ...more });
}

const signal = new AbortController().signal;

describe('bench/systems/mesh-sessions', () => {
  it('tells when each token of each session came, and the means of the stages', async () => {
    const said = await answer(nodeOf({ tokens: counted }).node, request({}), signal) as {
      times_ms: number[][]; tokens: number[][]; step_ms: number[]; stages: object[]; paths: string[];
    };
    assert.deepEqual(said.tokens, [[100, 101, 102], [200, 201, 202]]);
    assert.deepEqual(said.times_ms.map(({ length }) => length), [3, 3]);
    assert.ok(said.times_ms.every((times) => times.every((time, i) => time >= (times[i - 1] ?? 0))));
    assert.equal(said.step_ms.length, 4);
    assert.deepEqual(said.stages, [
      { queue_ms: 1, compute_ms: 15, hand_over_ms: 0.5 }, { queue_ms: 3, compute_ms: 17, hand_over_ms: 1.5 },
    ]);
    assert.deepEqual(said.paths, ['libp2p direct-grpc']);
  });

  it('begins one more session when the others are under way, and ends them one token behind its first', async () => {
    const came = new Map([[1, 0], [2, 0]]);
    let atBegin: number[] = [];
    const { node, left, asked } = nodeOf({
      tokens: async function* tokens(session, asking) {
        if (session === 9) {
          atBegin = [...came.values()];
          for (let i = 0; i < 50; i++) {
            await setImmediate();
          }
          yield { ids: [900], finish: 'max_tokens' };
          return;
        }
        for await (const event of counted(session, asking)) {
          came.set(session, (came.get(session) ?? 0) + 1);
          yield event;
        }
      },
    });
    const late = { prompt: [9, 9, 9], after: 4 };
    const said = await answerBeside(node, { ...request({ output: 5000 }), late }, signal) as {
      first_token_ms: number; step_ms: number[]; paths: string[];
    };
    assert.ok(atBegin.every((n) => n >= 4), `${atBegin.join(', ')} tokens`);
    assert.deepEqual(left.toSorted((a, b) => a - b), [1, 2]);
    const all = [...came.values()].reduce((sum, n) => sum + n, 0);
    assert.ok(all < 1000, 'the others went on');
    // A step for each token that came later than its request: at the least one of each session.
    assert.ok(said.step_ms.length >= 2 && said.step_ms.length <= all - 8, `${said.step_ms.length} steps of ${all} tokens`);
    assert.ok(said.first_token_ms > 0 && said.step_ms.every((ms) => ms >= 0));
    assert.deepEqual(asked.map(({ maxTokens }) => maxTokens), [5000, 5000, 1]);
  });

  it('goes on with a conversation as the same client, behind its answer', async () => {
    const { node, asked } = nodeOf({ tokens: counted });
    const said = await answerTwice(node, { ...request({ prompts: [[1, 1]] }), more: [7, 8] }, signal) as { first_token_ms: number; paths: string[] };
    assert.ok(said.first_token_ms >= 0);
    assert.deepEqual(said.paths, ['libp2p direct-grpc']);
    assert.deepEqual(asked.map(({ ids, maxTokens }) => [ids, maxTokens]), [[[1, 1], 3], [[1, 1, 100, 101, 102, 7, 8], 1]]);
    await answerTwice(node, { ...request({ prompts: [[1, 1]] }), more: [7, 8] }, signal);
    const clients = asked.map(({ client }) => client);
    assert.equal(clients[0], clients[1]);
    assert.equal(new Set(clients).size, 2);
  });

  it('gives nothing when the others are over before its first token', async () => {
    const { node } = nodeOf({
      tokens: async function* tokens(session, asking) {
        if (session === 9) {
          for (let i = 0; i < 100; i++) {
            await setImmediate();
          }
        }
        yield* counted(session, asking);
      },
    });
    const late = { prompt: [9], after: 2 };
    await assert.rejects(answerBeside(node, { ...request({ output: 3 }), late }, signal), (err) => isMeshnetError(err, 'INTERNAL'));
  });

  it('fails with the session that fails', async () => {
    const { node } = nodeOf({
      tokens: async function* tokens(session, asking) {
        if (session === 2) {
          throw new Error('lost');
        }
        yield* counted(session, asking);
      },
    });
    const late = { prompt: [9], after: 2 };
    await assert.rejects(answer(node, request({}), signal), /lost/);
    await assert.rejects(answerBeside(node, { ...request({}), late }, signal), /lost/);
  });

  it('reads no session without a prompt, nor a late one that begins at once', () => {
    for (const wrong of [{ prompts: [[]] }, { output: 0 }, { late: { prompt: [], after: 1 } }, { late: { prompt: [1], after: 0 } }]) {
      assert.throws(() => request(wrong), JSON.stringify(wrong));
    }
  });
});
