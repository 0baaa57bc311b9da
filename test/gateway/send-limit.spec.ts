import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { limitSending } from '../../src/gateway/send-limit.ts';
import { rawConnection } from './http-client.ts';

/** More than the buffers of both ends of a loopback connection hold. */
const MUCH = Buffer.alloc(64 * 1024 * 1024, 'x');

describe('gateway/send-limit', () => {
  let server: Server;
  let sockets: Socket[];

  beforeEach(async () => {
    server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    sockets = [];
  });

  afterEach(async () => {
    sockets.forEach((socket) => socket.destroy());
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });

  /** To a client that reads, or does not. */
  const response = async (reads: boolean): Promise<ServerResponse> => {
    const socket = await rawConnection(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    sockets.push(reads ? socket.resume() : socket.pause());
    socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    return (await once(server, 'request') as [unknown, ServerResponse])[1];
  };

  it('cuts a connection whose reader takes nothing', async () => {
    const answer = await response(false);
    limitSending(answer, 50);
    answer.end(MUCH);
    await once(answer, 'close');
    assert.equal(answer.writableFinished, false);
    assert.equal(answer.destroyed, true);
  });

  it('leaves one alone whose reader took everything', async () => {
    const answer = await response(true);
    limitSending(answer, 20);
    answer.end('done');
    await once(answer, 'finish');
    const other = await response(false);
    limitSending(other, 60);
    other.end(MUCH);
    await once(other, 'close');
    assert.equal(answer.req.socket.destroyed, false);
  });
});
