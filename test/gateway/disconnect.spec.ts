import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { isMeshnetError } from '../../src/errors.ts';
import type { Gateway } from '../../src/gateway/gateway.ts';
import type { GatewayInit } from '../../src/gateway/gateway-init.ts';
import { chatBody, listen, NotedLog, post, rawConnection, readStream } from './http-client.ts';
import { CARD, END, idsOf, LONG, LONG_BYTES, ScriptedBackend, untilAborted } from './scripted-backend.ts';

/** Longest that a cancel may take, ms. */
const CANCEL_MS = 500;
/** More tokens of `LONG_BYTES` than the buffers of both ends of a loopback connection hold. */
const MANY = 600;

describe('gateway/disconnect', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    gateway = await listen(backend);
  });

  afterEach(async () => {
    await gateway.stop();
  });

  const leaveWhen = async (reached: Promise<void>, fields: Record<string, unknown>): Promise<void> => {
    const controller = new AbortController();
    const request = post(`${gateway.url}/v1/chat/completions`, chatBody(fields), { signal: controller.signal })
      .then((response) => response.text());
    await reached;
    const start = performance.now();
    controller.abort();
    await assert.rejects(request, { name: 'AbortError' });
    await backend.left();
    assert.ok(performance.now() - start < CANCEL_MS);
  };

  for (const stream of [false, true]) {
    const kind = stream ? 'a streamed' : 'a plain';

    it(`cancels ${kind} answer in admission`, async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      backend.admission = (signal) => {
        resolve();
        return untilAborted(signal);
      };
      await leaveWhen(promise, { stream });
    });

    it(`cancels ${kind} answer before its first token`, async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      backend.script = async function* (_request, signal) {
        resolve();
        yield await untilAborted(signal);
      };
      await leaveWhen(promise, { stream });
    });

    it(`cancels ${kind} answer in the middle`, async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      backend.script = async function* (_request, signal) {
        yield { ids: idsOf('a') };
        resolve();
        yield await untilAborted(signal);
      };
      await leaveWhen(promise, { stream });
    });
  }

  it('gives back a route that opens when the client has just gone', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    backend.admission = async (signal) => {
      resolve();
      await untilAborted(signal).catch(() => undefined);
    };
    await leaveWhen(promise, {});
  });

  it('cancels when the connection is reset', async () => {
    backend.script = async function* (_request, signal) {
      yield { ids: idsOf('a') };
      yield await untilAborted(signal);
    };
    const body = JSON.stringify(chatBody({ stream: true }));
    const socket = await rawConnection(gateway.url);
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await once(socket, 'data');
    socket.resetAndDestroy();
    await backend.left();
  });

  describe('with a reader that takes nothing', () => {
    let log: NotedLog;
    const sockets: Socket[] = [];

    afterEach(() => {
      sockets.splice(0).forEach((socket) => socket.destroy());
    });

    /** Asks, and reads nothing of the answer. */
    const ask = async (init: GatewayInit, maxTokens: number): Promise<Socket> => {
      await gateway.stop();
      backend.cards = [{ ...CARD, contextLength: 4096 }];
      log = new NotedLog();
      gateway = await listen(backend, init, log);
      const body = JSON.stringify(chatBody({ stream: true, max_tokens: maxTokens }));
      const socket = await rawConnection(gateway.url);
      sockets.push(socket.pause());
      socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
      return socket;
    };

    const assertCut = async (): Promise<void> => {
      const { err } = await log.line('answer broken off') as { err: unknown };
      assert.ok(isMeshnetError(err, 'READER_TOO_SLOW'), String(err));
    };

    it('is not held up, and keeps what was not taken yet', async () => {
      const produced = Promise.withResolvers<void>();
      backend.script = async function* () {
        for (let i = 0; i < MANY; i++) {
          yield { ids: [LONG] };
        }
        produced.resolve();
        yield { ids: [END], finish: 'end' };
      };
      const socket = await ask({}, MANY + 1);
      await produced.promise;
      let bytes = 0;
      let end = '';
      for await (const chunk of socket) {
        bytes += (chunk as Buffer).length;
        end = (end + String(chunk)).slice(-100);
      }
      assert.ok(bytes > MANY * LONG_BYTES);
      assert.match(end, /data: \[DONE\]\n\n/);
      assert.equal(backend.cancelled, 0);
    });

    it('keeps no more than the answer may have, then cuts the connection and cancels', async () => {
      backend.script = async function* () {
        while (true) {
          yield { ids: [LONG] };
        }
      };
      await ask({}, MANY);
      await backend.left();
      await assertCut();
    });

    it('gives it up after its time, also when the answer is complete', async () => {
      backend.script = async function* (_request, signal) {
        for (let i = 0; i < MANY; i++) {
          yield { ids: [LONG] };
        }
        yield await untilAborted(signal);
      };
      await ask({ slowReaderMs: 50 }, MANY + 1);
      await backend.left();
      await assertCut();

      backend.script = async function* () {
        yield { ids: Array.from({ length: MANY }, () => LONG), finish: 'max_tokens' };
      };
      await ask({ slowReaderMs: 50 }, MANY);
      await assertCut();
    });
  });

  it('tells running answers that it stops, and then starts again', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    backend.script = async function* (_request, signal) {
      yield { ids: idsOf('a') };
      resolve();
      yield await untilAborted(signal);
    };
    const response = await post(`${gateway.url}/v1/chat/completions`, chatBody({ stream: true }));
    await promise;
    const [{ chunks, done }] = await Promise.all([readStream(response), gateway.stop()]);
    assert.equal((chunks.at(-1) as unknown as { error: { code: string } }).error.code, 'draining');
    assert.equal(done, false);
    await gateway.start();
    assert.equal((await fetch(`${gateway.url}/health`)).status, 200);
  });

  it('keeps the connection after a stream', async () => {
    const socket = await rawConnection(gateway.url);
    const body = JSON.stringify(chatBody({ stream: true }));
    const request = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    let text = '';
    socket.on('data', (chunk) => { text += String(chunk); });
    for (const answers of [1, 2]) {
      socket.write(request);
      while ((text.match(/\r\n0\r\n\r\n/g) ?? []).length < answers) {
        await once(socket, 'data');
      }
    }
    assert.equal((text.match(/^HTTP\/1\.1 200 OK/gm) ?? []).length, 2);
    socket.destroy();
  });

  it('refuses more answers than it may have, and says when to come back', async () => {
    await gateway.stop();
    gateway = await listen(backend, { maxAnswers: 1, maxQueued: 0 });
    const url = `${gateway.url}/v1/chat/completions`;
    backend.script = async function* (_request, signal) {
      yield { ids: idsOf('a') };
      yield await untilAborted(signal);
    };
    const controller = new AbortController();
    const running = await post(url, chatBody({ stream: true }), { signal: controller.signal });
    const refused = await post(url, chatBody());
    assert.equal(refused.status, 429);
    assert.equal(refused.headers.get('retry-after'), '1');
    assert.equal((await refused.json() as { error: { code: string } }).error.code, 'rate_limit_exceeded');
    controller.abort();
    await assert.rejects(running.text(), { name: 'AbortError' });
    await backend.left();
  });
});
