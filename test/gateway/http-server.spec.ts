import assert from 'node:assert/strict';
import { isMeshnetError } from '../../src/errors.ts';
import { Gateway } from '../../src/gateway/gateway.ts';
import type { ModelObject } from '../../src/gateway/model-list.ts';
import { chatBody, listen, post, rawConnection, rawExchange } from './http-client.ts';
import { CARD, refusal, ScriptedBackend } from './scripted-backend.ts';

interface ErrorAnswer {
  error: { message: string; type: string; param: string | null; code: string | null };
}

describe('gateway/http-server', () => {
  let backend: ScriptedBackend;
  let gateway: Gateway;

  beforeEach(async () => {
    backend = new ScriptedBackend();
    gateway = await listen(backend, { allowedHosts: ['mesh.example'], allowedOrigins: ['https://chat.example'], headersMs: 300 });
  });

  afterEach(async () => {
    await gateway.stop();
  });

  it('answers with and without /v1, with and without a slash at the end', async () => {
    for (const base of ['', '/v1', '/v1/', '//v1']) {
      assert.equal((await fetch(`${gateway.url}${base}/models`)).status, 200, base);
      assert.equal((await fetch(`${gateway.url}${base}/models/`)).status, 200, base);
      assert.equal((await post(`${gateway.url}${base}/chat/completions/`, chatBody())).status, 200, base);
    }
  });

  it('lists models with the window that clients look for', async () => {
    const { data } = await (await fetch(`${gateway.url}/v1/models`)).json() as { data: ModelObject[] };
    assert.equal(data.length, 1);
    const privacy = data[0]?.meshnet.privacy ?? '';
    assert.match(privacy, /can read/);
    assert.deepEqual(data[0], {
      id: CARD.id, object: 'model', created: CARD.created, owned_by: 'meshnet', context_length: 512, max_model_len: 512,
      meta: { n_ctx: 512, n_layer: 4 },
      meshnet: { fingerprint: CARD.digest, coverage: 'complete', privacy },
    });
    for (const id of [CARD.id, encodeURIComponent(CARD.id)]) {
      assert.deepEqual(await (await fetch(`${gateway.url}/v1/models/${id}`)).json(), data[0]);
    }
    const missing = await fetch(`${gateway.url}/v1/models/no-such`);
    assert.equal(missing.status, 404);
    assert.equal((await missing.json() as ErrorAnswer).error.code, 'model_not_found');
  });

  it('says whether it can answer', async () => {
    assert.deepEqual(await (await fetch(`${gateway.url}/health`)).json(), { status: 'ok', models: 1, answers: 0, waiting: 0 });
    backend.ready = false;
    assert.equal((await fetch(`${gateway.url}/v1/health`)).status, 503);
  });

  it('refuses every body that is no request with 400 and its place, before anything runs', async () => {
    const url = `${gateway.url}/v1/chat/completions`;
    const json = { 'content-type': 'application/json' };
    const cases: [string | Uint8Array, Record<string, string>, string][] = [
      ['', json, 'body'], ['{', json, 'body'], ['[]', json, 'body'], [Uint8Array.of(0x7b, 0xff, 0x7d), json, 'body'],
      [JSON.stringify(chatBody()), { 'content-type': 'text/plain' }, 'body'],
      [JSON.stringify(chatBody()), { 'content-type': 'application/x-www-form-urlencoded' }, 'body'],
      [JSON.stringify(chatBody()), { 'content-type': '' }, 'body'],
      [JSON.stringify({ messages: [] }), json, 'model'],
      [JSON.stringify(chatBody({ messages: [{ role: 'user', content: [{ type: 'text', text: 5 }] }] })), json, 'messages[0].content[0].text'],
      [JSON.stringify(chatBody({ tools: [{}] })), json, 'tools'],
      [`{"model":"m","messages":${'['.repeat(100)}${']'.repeat(100)}}`, json, 'body'],
    ];
    for (const [body, headers, param] of cases) {
      const response = await post(url, body, { headers });
      const { error } = await response.json() as ErrorAnswer;
      assert.equal(response.status, 400, `${String(body).slice(0, 40)} ${JSON.stringify(headers)}`);
      assert.equal(error.param, param);
      assert.equal(error.type, 'invalid_request_error');
      assert.ok(error.code === null || typeof error.code === 'string');
    }
    assert.equal(backend.texts.rendered.length, 0);
    assert.equal((await post(url, chatBody(), { headers: { 'content-type': 'Application/JSON; charset=utf-8' } })).status, 200);
  });

  it('refuses a body above its limit with 413', async () => {
    const response = await post(`${gateway.url}/v1/chat/completions`, 'x'.repeat(4 * 1024 * 1024 + 1));
    assert.equal(response.status, 413);
    assert.equal((await response.json() as ErrorAnswer).error.code, 'body_too_large');
  });

  it('answers an unknown model with 404 and an unknown path with 404, both as JSON', async () => {
    const model = await post(`${gateway.url}/v1/chat/completions`, chatBody({ model: 'no-such' }));
    assert.equal(model.status, 404);
    assert.equal((await model.json() as ErrorAnswer).error.param, 'model');
    for (const [method, path] of [['GET', '/v1/nothing'], ['DELETE', '/v1/models'], ['GET', '/v1/chat/completions'], ['GET', '/%zz']]) {
      const response = await fetch(gateway.url + path, { method });
      assert.ok(response.status === 404 || response.status === 400, path);
      assert.equal(typeof (await response.json() as ErrorAnswer).error.message, 'string');
    }
  });

  it('hides what went wrong inside, and says that it did', async () => {
    backend.refusal = refusal('INTERNAL');
    assert.equal((await post(`${gateway.url}/v1/chat/completions`, chatBody())).status, 500);
    backend.models = () => { throw new TypeError('secret path'); };
    const response = await fetch(`${gateway.url}/v1/models`);
    assert.equal(response.status, 500);
    assert.doesNotMatch(JSON.stringify(await response.json()), /secret/);
  });

  it('names every answer, by the id that the client gave when it is a decent one', async () => {
    const given = await fetch(`${gateway.url}/health`, { headers: { 'x-request-id': 'abc-1' } });
    assert.equal(given.headers.get('x-request-id'), 'abc-1');
    for (const headers of [{}, { 'x-request-id': 'a b' }, { 'x-request-id': 'x'.repeat(200) }]) {
      assert.match((await fetch(`${gateway.url}/health`, { headers })).headers.get('x-request-id') ?? '', /^req_[0-9a-f]{24}$/);
    }
    assert.match((await post(`${gateway.url}/v1/chat/completions`, chatBody({ stream: true }))).headers.get('x-request-id') ?? '', /^req_/);
  });

  it('lets no page in through a name of its own, on no path', async () => {
    for (const path of ['/health', '/v1/models', '/v1/nothing', '/metrics']) {
      const answer = await rawExchange(gateway.url, `GET ${path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 403 /, path);
    }
    for (const host of ['localhost:1', 'MESH.example', '[::1]']) {
      assert.match(await rawExchange(gateway.url, `GET /health HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`), /^HTTP\/1\.1 200 /);
    }
  });

  it('answers pre-flights of known pages and gives strangers nothing', async () => {
    const preflight = (origin: string): Promise<Response> => fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization,x-stainless-os' },
    });
    for (const origin of ['http://localhost:3000', 'https://chat.example']) {
      const response = await preflight(origin);
      assert.equal(response.status, 204);
      assert.equal(response.headers.get('access-control-allow-origin'), origin);
      assert.match(response.headers.get('access-control-allow-headers') ?? '', /authorization.*x-stainless-os/);
      assert.equal(response.headers.get('access-control-allow-credentials'), null);
    }
    const stranger = await preflight('https://evil.example');
    assert.equal(stranger.status, 403);
    assert.equal(stranger.headers.get('access-control-allow-origin'), null);
    const streamed = await post(`${gateway.url}/v1/chat/completions`, chatBody({ stream: true }), { headers: { origin: 'https://chat.example' } });
    assert.equal(streamed.headers.get('access-control-allow-origin'), 'https://chat.example');
    assert.equal(streamed.headers.get('vary'), 'origin');
    assert.equal((await post(`${gateway.url}/v1/chat/completions`, chatBody(), { headers: { origin: 'https://evil.example' } })).status, 403);
  });

  it('wants the key when it has one, but not for its health', async () => {
    const locked = await listen(backend, { key: 's3cret' });
    try {
      const refused = await fetch(`${locked.url}/v1/models`);
      assert.equal(refused.status, 401);
      assert.equal((await refused.json() as ErrorAnswer).error.code, 'invalid_api_key');
      assert.equal((await fetch(`${locked.url}/v1/models`, { headers: { authorization: 'bearer s3cret' } })).status, 200);
      assert.equal((await fetch(`${locked.url}/health`)).status, 200);
      assert.equal((await fetch(`${locked.url}/v1/chat/completions`, { method: 'OPTIONS' })).status, 204);
    } finally {
      await locked.stop();
    }
    assert.equal((await fetch(`${gateway.url}/v1/models`, { headers: { authorization: 'Bearer whatever' } })).status, 200);
  });

  it('does not listen where strangers are without a key', () => {
    const components = { backend, log: { debug: () => undefined, info: () => undefined, error: () => undefined } };
    assert.throws(() => new Gateway(components, { host: '0.0.0.0' }), (err) => isMeshnetError(err, 'CONFIG_INVALID'));
    assert.ok(new Gateway(components, { host: '0.0.0.0', key: 'k' }));
  });

  it('says that its port is taken', async () => {
    const port = Number(new URL(gateway.url).port);
    await assert.rejects(listen(backend, { port }), (err) => isMeshnetError(err, 'ADDRESS_IN_USE'));
  });

  it('gives a client of HTTP/1.0 no chunks', async () => {
    const body = JSON.stringify(chatBody({ stream: true }));
    const answer = await rawExchange(gateway.url, `POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    assert.doesNotMatch(answer, /transfer-encoding/i);
    assert.match(answer, /\r\n\r\ndata: \{/);
    assert.match(answer, /data: \[DONE\]\n\n$/);
  });

  it('answers bytes that are no HTTP in the shape of every error', async () => {
    const answer = await rawExchange(gateway.url, 'nonsense\r\n\r\n');
    assert.match(answer, /^HTTP\/1\.1 400 /);
    assert.equal((JSON.parse(answer.split('\r\n\r\n')[1] ?? '') as ErrorAnswer).error.type, 'invalid_request_error');
  });

  it('is delayed by no silent or half-open connection, and ends them', async () => {
    const silent = await Promise.all(Array.from({ length: 100 }, () => rawConnection(gateway.url)));
    const ended = Promise.all(silent.map((socket, i) => {
      if (i % 2 === 0) {
        socket.write('POST /v1/chat/completions HTTP/1.1\r\nHost: loc');
      }
      socket.resume();
      return new Promise((resolve) => { socket.once('close', resolve); });
    }));
    const start = performance.now();
    assert.equal((await post(`${gateway.url}/v1/chat/completions`, chatBody())).status, 200);
    assert.ok(performance.now() - start < 1000);
    await ended;
  });
});
