import assert from 'node:assert/strict';
import { once } from 'node:events';
import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { Call } from '../../../bench/load/call.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const ASK = { model: 'm', prompt: [300, 301], output: 3, client: 'somebody' };
const ROUTE = JSON.stringify({ epoch: 1, stages: [{ peer: 'a' }, { peer: 'b' }] });
const STREAM = { 'content-type': 'text/event-stream; charset=utf-8', 'x-meshnet-route': ROUTE };

const chunk = (tokens: string[], finish: string | null = null): object =>
  ({ choices: [{ text: '', finish_reason: finish, logprobs: finish === null ? { tokens } : null }] });
const event = (data: unknown): string => `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;

describe('bench/load/call', () => {
  let server: Server;
  let answer: (request: IncomingMessage, response: ServerResponse) => void;
  const { signal } = new AbortController();
  const ask = (fields = {}): Call => new Call(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { ...ASK, ...fields }, signal);

  beforeEach(async () => {
    server = http.createServer((request, response) => { answer(request, response); }).listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });

  it('counts the tokens of a stream, knows its route, and takes it for whole at its last line', async () => {
    answer = (_, response) => {
      response.writeHead(200, STREAM);
      response.end([chunk(['x']), chunk(['y', '']), chunk([], 'length'), '[DONE]'].map(event).join(''));
    };
    const call = ask();
    assert.deepEqual(await call.opened(signal), ['a', 'b']);
    await call.reaches(3, signal);
    const { status, whole, error } = await call.ended;
    assert.deepEqual([status, whole, error, call.times.length], [200, true, undefined, 3]);
  });

  it('asks for an answer that no end token ends, under the name of its client', async () => {
    const asked = Promise.withResolvers<[body: unknown, authorization: string | undefined]>();
    const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      asked.resolve([await json(request), request.headers.authorization]);
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({
        choices: [{ text: 'xyz', finish_reason: 'length', logprobs: { tokens: ['x', 'y', 'z'] } }],
      }));
    };
    answer = (request, response) => { respond(request, response).catch(asked.reject); };
    const call = ask({ stream: false });
    assert.deepEqual(await asked.promise, [
      { model: 'm', prompt: [300, 301], max_tokens: 3, temperature: 0, logit_bias: { 2: -100 }, logprobs: 0, stream: false },
      'Bearer somebody',
    ]);
    assert.equal((await call.ended).whole, true);
    assert.equal(call.times.length, 3);
  });

  it('tells a refusal with its code and when to come back', async () => {
    answer = (_, response) => {
      response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '5' });
      response.end(JSON.stringify({ error: { message: 'no', type: 'rate_limit_error', param: null, code: 'rate_limit_exceeded' } }));
    };
    const call = ask();
    await assert.rejects(call.opened(signal), (err) => isMeshnetError(err, 'REQUEST_FAILED') && err.details.code === 'rate_limit_exceeded');
    const { status, retryAfter, error, whole } = await call.ended;
    assert.deepEqual([status, retryAfter, error, whole], [
      429, 5, { type: 'rate_limit_error', code: 'rate_limit_exceeded' }, false,
    ]);
  });

  it('takes a stream that breaks off, or ends in an error, for no whole answer', async () => {
    answer = (_, response) => {
      response.writeHead(200, STREAM);
      response.write(event(chunk(['x'])), () => { response.destroy(); });
    };
    const broken = await ask().ended;
    assert.deepEqual([broken.status, broken.whole], [200, false]);
    answer = (_, response) => {
      response.writeHead(200, STREAM);
      response.end(event(chunk(['x'])) + event({ error: { message: 'no', type: 'server_error', param: null, code: 'worker_lost' } }));
    };
    const failed = await ask().ended;
    assert.deepEqual([failed.whole, failed.error?.code], [false, 'worker_lost']);
  });

  it('closes its connection when it leaves, and ends by that', async () => {
    const gone = Promise.withResolvers<void>();
    answer = (_, response) => {
      response.on('close', gone.resolve);
      response.writeHead(200, STREAM);
      response.write(event(chunk(['x'])));
    };
    const call = ask();
    await call.reaches(1, signal);
    call.leave();
    await gone.promise;
    assert.equal((await call.ended).whole, false);
    await assert.rejects(call.reaches(2, signal), (err) => isMeshnetError(err, 'REQUEST_FAILED'));
  });

  it('ends without a status when nobody answers', async () => {
    answer = (request) => { request.socket.destroy(); };
    assert.equal((await ask().ended).status, 0);
  });
});
