import assert from 'node:assert/strict';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { ApiClient, type ChatDelta } from '../../src/cli/api-client.ts';
import { ApiServer, event, ROUTE, streamed } from './api-server.ts';

const soon = (): AbortSignal => AbortSignal.timeout(10_000);
const code = (wanted: ErrorCode) => (err: unknown): boolean => isMeshnetError(err, wanted);
const REQUEST = { model: 'm', messages: [{ role: 'user', content: 'hello' }] };

describe('cli/api-client', () => {
  let server: ApiServer;

  beforeEach(async () => {
    server = new ApiServer();
    await server.start();
  });

  afterEach(async () => { await server.stop(); });

  async function chat(signal = soon(), onDelta: (delta: ChatDelta) => void = () => undefined): Promise<ChatDelta[]> {
    const deltas: ChatDelta[] = [];
    for await (const delta of new ApiClient(server.url).chat(REQUEST, () => undefined, signal)) {
      deltas.push(delta);
      onDelta(delta);
    }
    return deltas;
  }

  it('sends the key and joins paths to a base with or without a slash', async () => {
    server.answer = (response) => { response.end('{"data":[1]}'); };
    assert.deepEqual(await new ApiClient(`${server.url}//`, 'secret').get('/v1/models', soon()), { data: [1] });
    assert.deepEqual(server.asked, [{ path: '/v1/models', key: 'Bearer secret', body: {} }]);
  });

  it('streams text, the finish and the tokens, and tells the route before them', async () => {
    server.answer = streamed(['Hel', 'lo']);
    let route: unknown;
    const deltas = await Array.fromAsync(new ApiClient(server.url).chat(REQUEST, (found) => { route = found; }, soon()));
    assert.deepEqual(route, ROUTE);
    assert.deepEqual(deltas, [
      { text: 'Hel' }, { text: 'lo' }, { text: '', finish: 'stop' }, { text: '', completionTokens: 2 },
    ]);
  });

  it('sends only what was asked for', async () => {
    server.answer = streamed([]);
    await chat();
    assert.deepEqual(server.asked[0]?.body, { ...REQUEST, stream: true, stream_options: { include_usage: true } });
    const all = { ...REQUEST, maxTokens: 5, temperature: 0, seed: 7 };
    await Array.fromAsync(new ApiClient(server.url).chat(all, () => undefined, soon()));
    const { max_completion_tokens: maxTokens, temperature, seed } = server.asked[1]?.body ?? {};
    assert.deepEqual([maxTokens, temperature, seed], [5, 0, 7]);
  });

  it('joins characters whose bytes come in two pieces', async () => {
    const bytes = Buffer.from(`${event({ choices: [{ delta: { content: 'é' } }] })}${event('[DONE]')}`);
    const at = bytes.indexOf(0xc3) + 1;
    server.answer = (response) => {
      response.writeHead(200);
      response.write(bytes.subarray(0, at), () => { setImmediate(() => response.end(bytes.subarray(at))); });
    };
    assert.deepEqual((await chat()).map(({ text }) => text), ['é']);
  });

  it('passes on what the node says, before the stream and in it', async () => {
    server.answer = (response) => { response.writeHead(404).end('{"error":{"message":"no such model","code":"MODEL_UNKNOWN"}}'); };
    await assert.rejects(chat(), (err) => isMeshnetError(err, 'REQUEST_FAILED') && err.message === 'no such model' &&
      err.details['code'] === 'MODEL_UNKNOWN' && err.details['status'] === 404);
    server.answer = streamed(['a'], [event({ error: { message: 'a worker was lost', code: 'WORKER_LOST' } })]);
    await assert.rejects(chat(), (err) => isMeshnetError(err, 'REQUEST_FAILED') && err.details['code'] === 'WORKER_LOST');
  });

  it('never takes a stream that stops for a whole answer', async () => {
    server.answer = streamed(['a'], []);
    await assert.rejects(chat(), code('STREAM_ENDED'));
    server.answer = (response) => {
      response.writeHead(200);
      response.write(event({ choices: [{ delta: { content: 'a' } }] }), () => { response.destroy(); });
    };
    await assert.rejects(chat(), code('STREAM_ENDED'));
  });

  it('is cancelled in mid-answer, and closes the connection', async () => {
    const gone = new AbortController();
    const closed = Promise.withResolvers<undefined>();
    server.answer = (response) => {
      response.on('close', () => { closed.resolve(undefined); });
      response.writeHead(200);
      response.write(event({ choices: [{ delta: { content: 'a' } }] }));
    };
    await assert.rejects(chat(gone.signal, () => { gone.abort(); }), code('CANCELLED'));
    await closed.promise;
  });

  it('tells a late answer from an interrupted one and from nobody', async () => {
    server.answer = () => undefined;
    await assert.rejects(new ApiClient(server.url).get('/x', AbortSignal.timeout(20)), code('DEADLINE_EXCEEDED'));
    await assert.rejects(new ApiClient(server.url).get('/x', AbortSignal.abort()), code('CANCELLED'));
    await assert.rejects(new ApiClient('http://127.0.0.1:1').get('/x', soon()), code('PEER_UNREACHABLE'));
  });

  it('shows the status of a node that does not serve yet', async () => {
    server.answer = (response) => { response.writeHead(503).end('{"status":"unavailable"}'); };
    assert.deepEqual(await new ApiClient(server.url).health(soon()), { status: 'unavailable' });
    await assert.rejects(new ApiClient(server.url).get('/health', soon()), code('REQUEST_FAILED'));
  });

  it('notices that something else answers there', async () => {
    server.answer = (response) => { response.end('<html>'); };
    await assert.rejects(new ApiClient(server.url).get('/x', soon()), code('REQUEST_FAILED'));
    server.answer = (response) => { response.end(event('hello')); };
    await assert.rejects(chat(), code('REQUEST_FAILED'));
  });
});
