import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { ApiClient } from '../../src/cli/api-client.ts';
import { ask } from '../../src/cli/chat.ts';
import { ApiServer, ROUTE, streamed } from './api-server.ts';

const PROGRAM = path.join(import.meta.dirname, '..', '..', 'bin', 'meshnet.js');

describe('cli/chat', () => {
  let server: ApiServer;

  beforeEach(async () => {
    server = new ApiServer();
    await server.start();
  });

  afterEach(async () => { await server.stop(); });

  async function command(args: readonly string[], input = ''): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: 'pipe' });
    child.stdin.end(input);
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
    return { code: code as number | null, stdout, stderr };
  }

  it('gathers an answer with its figures', async () => {
    server.answer = streamed(['a', 'b', 'c']);
    const seen: string[] = [];
    const answer = await ask(new ApiClient(server.url), { model: 'm', messages: [] }, (piece) => { seen.push(piece); },
      AbortSignal.timeout(10_000));
    assert.deepEqual(seen, ['a', 'b', 'c']);
    assert.deepEqual([answer.text, answer.completion_tokens, answer.finish, answer.model], ['abc', 3, 'stop', 'm']);
    assert.deepEqual(answer.route, ROUTE);
    assert.ok(answer.ttft_ms >= 0 && answer.tokens_per_second >= 0);
  });

  it('asks the first model that the node offers, once, as JSON', async () => {
    server.answer = (response, request) => {
      if (request.path === '/v1/models') {
        response.end('{"data":[{"id":"first"},{"id":"second"}]}');
      } else {
        streamed(['hi'])(response, request);
      }
    };
    const { code, stdout } = await command(['chat', '--api', server.url, '--prompt', 'hello', '--max-tokens', '4', '--json']);
    assert.equal(code, 0);
    const answer = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([answer['text'], answer['model'], answer['completion_tokens']], ['hi', 'first', 1]);
    assert.equal(server.asked[1]?.body['max_completion_tokens'], 4);
  });

  it('keeps the conversation, line by line, to the end of the input', async () => {
    let turn = 0;
    server.answer = (response, request) => { streamed([`answer ${++turn}`])(response, request); };
    const { code, stdout } = await command(['chat', 'm', '--api', server.url], 'one\ntwo\n');
    assert.equal(code, 0);
    assert.equal(stdout, 'answer 1\nanswer 2\n');
    assert.deepEqual(server.asked[1]?.body['messages'], [
      { role: 'user', content: 'one' }, { role: 'assistant', content: 'answer 1' }, { role: 'user', content: 'two' },
    ]);
  });

  it('ends with the codes that its errors have', async () => {
    assert.equal((await command(['chat', 'm', '--api', server.url, '-p', 'x', '--max-tokens', 'four'])).code, 2);
    const failed = await command(['chat', 'm', '--api', server.url, '-p', 'x', '--json']);
    assert.equal(failed.code, 1);
    assert.equal((JSON.parse(failed.stdout) as { error: { code: string } }).error.code, 'REQUEST_FAILED');
    assert.match(failed.stderr, /^E_REQUEST_FAILED: /);
  });
});
