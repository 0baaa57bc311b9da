import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import type { TokenEvent } from '../../src/gateway/backend.ts';
import { Gateway } from '../../src/gateway/gateway.ts';
import type { GatewayInit } from '../../src/gateway/gateway-init.ts';
import { chatBody, listen, post, readStream } from './http-client.ts';
import { RecordingMetrics } from './recording-metrics.ts';
import { idsOf, refusal, ScriptedBackend, speak, untilAborted } from './scripted-backend.ts';

describe('gateway/metrics', () => {
  let backend: ScriptedBackend;
  let metrics: RecordingMetrics;
  let gateway: Gateway;
  let url: string;

  async function listenWith(observer: RecordingMetrics, init: GatewayInit = {}): Promise<Gateway> {
    const log = { debug: (): void => undefined, info: (): void => undefined, error: (): void => undefined };
    const started = new Gateway({ backend, log, metrics: observer }, { port: 0, ...init });
    await started.start();
    return started;
  }

  beforeEach(async () => {
    backend = new ScriptedBackend();
    metrics = new RecordingMetrics();
    gateway = await listenWith(metrics);
    url = `${gateway.url}/v1/chat/completions`;
  });

  afterEach(async () => {
    await gateway.stop();
    assert.deepEqual([metrics.waiting, metrics.open], [0, 0]);
  });

  it('tells of answers in one piece and streamed, and of each of their tokens', async () => {
    await (await post(url, chatBody())).json();
    await readStream(await post(url, chatBody({ stream: true })));
    await post(`${gateway.url}/v1/completions`, { model: chatBody()['model'], prompt: 'Hi' });
    await metrics.ended(3);
    assert.deepEqual(metrics.ends, Array.from({ length: 3 }, () => ({ outcome: 'answered', opened: true })));
    // `Hello.` and the end token, each time.
    assert.equal(metrics.firsts.length, 3);
    assert.equal(metrics.more.length, 3 * idsOf('Hello.').length);
    assert.ok([...metrics.firsts, ...metrics.more.map(({ ms }) => ms)].every((ms) => ms >= 0));
  });

  it('tells of a request that is refused for its form, by the text process or by the mesh', async () => {
    backend.refusal = refusal('NO_ROUTE');
    const bodies = ['{', chatBody({ model: 'no-such' }), chatBody({ max_tokens: 100_000 }), chatBody()];
    for (const body of bodies) {
      assert.ok((await post(url, body)).status >= 400);
    }
    await metrics.ended(bodies.length);
    assert.deepEqual(metrics.ends.map(({ outcome, reason, opened }) => [outcome, reason, opened]), [
      ['refused', 'REQUEST_INVALID', false], ['refused', 'MODEL_UNKNOWN', false],
      ['refused', 'CONTEXT_LENGTH_EXCEEDED', false], ['refused', 'NO_ROUTE', false],
    ]);
  });

  it('tells of an answer that breaks off, in a stream too', async () => {
    backend.script = async function * (): AsyncGenerator<TokenEvent> {
      yield { ids: idsOf('H') };
      throw new MeshnetError('WORKER_LOST');
    };
    for (const stream of [false, true]) {
      await (await post(url, chatBody({ stream }))).text();
    }
    await metrics.ended(2);
    const failed = { outcome: 'failed', reason: 'WORKER_LOST', opened: true };
    assert.deepEqual(metrics.ends, [failed, failed]);
  });

  it('tells of a client that leaves', async () => {
    backend.script = async function * (_request, signal): AsyncGenerator<TokenEvent> {
      yield { ids: idsOf('H') };
      await untilAborted(signal);
    };
    const leaving = new AbortController();
    const response = await post(url, chatBody({ stream: true }), { signal: leaving.signal });
    assert.equal(metrics.open, 1);
    leaving.abort();
    await assert.rejects(response.text());
    await metrics.ended(1);
    assert.deepEqual(metrics.ends, [{ outcome: 'cancelled', opened: true }]);
  });

  it('tells of answers that a stop ends', async () => {
    backend.script = async function * (_request, signal): AsyncGenerator<TokenEvent> {
      yield { ids: idsOf('H') };
      await untilAborted(signal);
    };
    const response = await post(url, chatBody({ stream: true }));
    await Promise.all([response.text(), gateway.stop()]);
    await metrics.ended(1);
    assert.deepEqual(metrics.ends, [{ outcome: 'failed', reason: 'DRAINING', opened: true }]);
  });

  it('splits the steps of which the stages say their times', async () => {
    const times = [{ queueUs: 1, computeUs: 2, serializeUs: 3 }];
    backend.script = async function * (): AsyncGenerator<TokenEvent> {
      for await (const event of speak('abc')) {
        yield { ...event, times };
      }
    };
    await (await post(url, chatBody())).json();
    await metrics.ended(1);
    assert.equal(metrics.steps.length, 3);
    assert.ok(metrics.steps.every(({ stages, networkMs }) => stages.length === 1 && networkMs >= 0));
  });

  it('shows them at /metrics to whoever has the key, and sums them up in /health', async () => {
    const response = await fetch(`${gateway.url}/metrics`);
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    assert.equal(await response.text(), 'ended 0\n');
    const health = await (await fetch(`${gateway.url}/health`)).json() as { activity: object };
    assert.deepEqual(health.activity, { ended: 0 });
    const locked = await listenWith(metrics, { key: 's3cret' });
    try {
      assert.equal((await fetch(`${locked.url}/metrics`)).status, 401);
      assert.equal((await fetch(`${locked.url}/metrics`, { headers: { authorization: 'Bearer s3cret' } })).status, 200);
    } finally {
      await locked.stop();
    }
  });

  it('has no such path without metrics', async () => {
    const bare = await listen(backend);
    try {
      assert.equal((await fetch(`${bare.url}/metrics`)).status, 404);
      assert.equal((await post(`${bare.url}/v1/chat/completions`, chatBody())).status, 200);
    } finally {
      await bare.stop();
    }
  });
});
