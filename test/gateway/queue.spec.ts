import assert from 'node:assert/strict';
import type { GenerationRequest } from '../../src/gateway/backend.ts';
import type { Gateway } from '../../src/gateway/gateway.ts';
import type { GatewayInit } from '../../src/gateway/gateway-init.ts';
import { chatBody, listen, post, readStream } from './http-client.ts';
import { END, idsOf, refusal, ScriptedBackend, untilAborted } from './scripted-backend.ts';

/** Longest that a waiting client's leaving may take, ms. */
const LEAVE_MS = 500;

interface ErrorAnswer {
  error: { message: string; type: string; param: string | null; code: string | null };
}

describe('gateway/queue', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;
  /** By the content of their message: ends an answer. */
  let finish: Map<string, () => void>;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    backend.sequences = 1;
    finish = new Map();
    backend.script = async function* (request, signal) {
      const { promise, resolve } = Promise.withResolvers<void>();
      finish.set(nameOf(request), resolve);
      yield { ids: idsOf('a') };
      await Promise.race([promise, untilAborted(signal)]);
      yield { ids: [END], finish: 'end' };
    };
    await restart();
  });

  afterEach(async () => {
    await gateway.stop();
  });

  const restart = async (init: GatewayInit = {}): Promise<void> => {
    await gateway?.stop();
    gateway = await listen(backend, { roomRetryMs: 5, ...init });
  };

  const nameOf = ({ ids }: GenerationRequest): string =>
    (JSON.parse(Buffer.from(ids).toString()) as [{ content: string }])[0].content;
  /** `a1` is the first request of the client `a`. */
  const ask = (name: string, { stream = true, signal }: { stream?: boolean; signal?: AbortSignal } = {}): Promise<Response> =>
    post(`${gateway.url}/v1/chat/completions`, chatBody({ stream, messages: [{ role: 'user', content: name }] }), {
      signal, headers: { authorization: `Bearer ${name[0]}` },
    });
  const until = async (holds: () => boolean): Promise<void> => {
    while (!holds()) {
      await new Promise((resolve) => { setImmediate(resolve); });
    }
  };
  /** Asks one after another, each of them waiting before the next one asks. */
  const queue = async (...names: string[]): Promise<Promise<Response>[]> => {
    const answers: Promise<Response>[] = [];
    for (const name of names) {
      const before = gateway.waiting;
      answers.push(ask(name));
      await until(() => gateway.waiting > before);
    }
    return answers;
  };
  const refused = async (response: Response, status: number): Promise<ErrorAnswer['error']> => {
    assert.equal(response.status, status);
    assert.ok(Number(response.headers.get('retry-after')) >= 1);
    assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8');
    const { error } = await response.json() as ErrorAnswer;
    assert.deepEqual(Object.keys(error).toSorted(), ['code', 'message', 'param', 'type']);
    return error;
  };
  const end = async (name: string, answer: Response): Promise<void> => {
    finish.get(name)?.();
    assert.equal((await readStream(answer)).done, true, name);
  };

  for (const stream of [true, false]) {
    it(`lets a ${stream ? 'streamed' : 'plain'} answer wait until a session ends, then answers it in whole`, async () => {
      const first = await ask('a1');
      const second = ask('b1', { stream });
      await until(() => gateway.waiting === 1);
      const { answers, waiting } = await (await fetch(`${gateway.url}/health`)).json() as { answers: number; waiting: number };
      assert.deepEqual([answers, waiting], [1, 1]);
      await end('a1', first);
      await until(() => finish.has('b1'));
      finish.get('b1')?.();
      const response = await second;
      assert.equal(response.status, 200);
      assert.match(await response.text(), stream ? /\[DONE\]\n\n$/ : /"finish_reason":"stop"/);
      assert.equal(gateway.waiting, 0);
    });
  }

  it('is fair between keys first, then between the requests of one', async () => {
    let running = await ask('x1');
    const names = ['a1', 'a2', 'a3', 'b1', 'c1'];
    const answers = await queue(...names);
    for (const expected of ['x1', 'a1', 'b1', 'c1', 'a2', 'a3']) {
      await until(() => finish.has(expected));
      assert.equal(nameOf(backend.opened.at(-1) as GenerationRequest), expected);
      const at = names.indexOf(expected);
      running = at < 0 ? running : await (answers[at] as Promise<Response>);
      await end(expected, running);
    }
  });

  it('refuses with 429 when as many wait as may, naming required and available', async () => {
    await restart({ maxQueued: 1 });
    const first = await ask('a1');
    const [second] = await queue('b1');
    const error = await refused(await ask('c1'), 429);
    assert.deepEqual([error.type, error.code, error.param], ['rate_limit_error', 'rate_limit_exceeded', null]);
    for (const fact of [/limit 1/, /requiredPositions \d+/, /availablePositions 96/, /requiredSequences 1/, /availableSequences 0/]) {
      assert.match(error.message, fact);
    }
    await end('a1', first);
    await end('b1', await (second as Promise<Response>));
  });

  it('refuses a client that has as many waiting as one may, and lets another one wait', async () => {
    await restart({ maxQueuedPerClient: 1 });
    const first = await ask('a1');
    const [second] = await queue('b1');
    assert.match((await refused(await ask('b2'), 429)).message, /of this client/);
    const [third] = await queue('c1');
    await end('a1', first);
    await end('b1', await (second as Promise<Response>));
    await end('c1', await (third as Promise<Response>));
  });

  it('takes clients without a key for one when they come from one place', async () => {
    await restart({ maxQueuedPerClient: 1 });
    const first = await ask('a1');
    const anonymous = (): Promise<Response> => post(`${gateway.url}/v1/chat/completions`, chatBody());
    const waiting = anonymous();
    await until(() => gateway.waiting === 1);
    await refused(await anonymous(), 429);
    backend.script = async function* () {
      yield { ids: [END], finish: 'end' };
    };
    await end('a1', first);
    assert.equal((await waiting).status, 200);
  });

  it('gives up with 503 after the longest wait', async () => {
    await restart({ queueMs: 50 });
    const first = await ask('a1');
    const error = await refused(await ask('b1'), 503);
    assert.deepEqual([error.type, error.code], ['server_error', 'no_capacity']);
    assert.match(error.message, /availableSequences 0/);
    assert.equal(gateway.waiting, 0);
    await end('a1', first);
  });

  for (const stream of [true, false]) {
    it(`forgets a client of ${stream ? 'a stream' : 'a plain answer'} that leaves while it waits, and gives its place to the next`, async () => {
      await restart({ maxQueued: 1 });
      const first = await ask('a1');
      const leaving = new AbortController();
      const left = ask('b1', { stream, signal: leaving.signal });
      await until(() => gateway.waiting === 1);
      const began = performance.now();
      leaving.abort();
      await assert.rejects(left, { name: 'AbortError' });
      await until(() => gateway.waiting === 0);
      assert.ok(performance.now() - began < LEAVE_MS);
      const [third] = await queue('c1');
      await end('a1', first);
      await end('c1', await (third as Promise<Response>));
      assert.deepEqual(backend.opened.map(nameOf), ['a1', 'c1']);
    });
  }

  it('serves the next when a running answer is left', async () => {
    const leaving = new AbortController();
    const first = await ask('a1', { signal: leaving.signal });
    const [second] = await queue('b1');
    leaving.abort();
    await assert.rejects(first.text(), { name: 'AbortError' });
    await end('b1', await (second as Promise<Response>));
    assert.equal(backend.running, 0);
  });

  it('does not take those who wait for answers that are being made', async () => {
    await restart({ maxAnswers: 2 });
    const first = await ask('a1');
    const answers = await queue('b1', 'c1', 'd1');
    backend.sequences = 4;
    await Promise.all(['b1', 'c1', 'd1'].map(async (name, i) => {
      await until(() => finish.has(name));
      await end(name, await (answers[i] as Promise<Response>));
    }));
    await end('a1', first);
  });

  it('lets a client in fairly when the gateway, and no shard, is at its limit', async () => {
    await restart({ maxAnswers: 1, maxQueued: 3, roomRetryMs: 60_000 });
    backend.sequences = 10;
    const first = await ask('a1');
    const names = ['a2', 'a3', 'b1'];
    const answers = await queue(...names);
    assert.match((await refused(await ask('c1'), 429)).message, /limit 4/);
    await end('a1', first);
    for (const name of ['a2', 'b1', 'a3']) {
      await until(() => finish.has(name));
      assert.equal(backend.running, 1);
      await end(name, await (answers[names.indexOf(name)] as Promise<Response>));
    }
  });

  it('lets no more in than may be answered at once, however much room there is', async () => {
    // Only news brings the next one in.
    await restart({ maxAnswers: 2, roomRetryMs: 60_000 });
    const first = await ask('a1');
    const answers = await queue('b1', 'c1', 'd1');
    backend.sequences = 10;
    await end('a1', first);
    const [second, third] = [await (answers[0] as Promise<Response>), await (answers[1] as Promise<Response>)];
    const { answers: running, waiting } = await (await fetch(`${gateway.url}/health`)).json() as { answers: number; waiting: number };
    assert.deepEqual([running, waiting, finish.has('d1')], [2, 1, false]);
    await end('b1', second);
    await end('d1', await (answers[2] as Promise<Response>));
    await end('c1', third);
  });

  it('does not wait for what waiting cannot change', async () => {
    backend.refusal = refusal('NO_ROUTE');
    assert.equal((await refused(await ask('a1'), 503)).code, 'no_route');
    backend.refusal = undefined;
    const first = await ask('a1');
    const [second] = await queue('b1');
    backend.refusal = refusal('NO_ROUTE');
    assert.equal((await refused(await (second as Promise<Response>), 503)).code, 'no_route');
    await end('a1', first);
  });

  it('tells those who wait that it stops', async () => {
    const first = await ask('a1');
    const [second] = await queue('b1');
    const [{ done }] = await Promise.all([readStream(first), gateway.stop()]);
    assert.equal(done, false);
    assert.equal((await refused(await (second as Promise<Response>), 503)).code, 'draining');
  });
});
