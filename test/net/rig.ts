import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, connect, type Socket, type Server } from 'node:net';
import type { ErrorCode, ErrorDetails } from '../../src/errors.ts';
import { MeshnetError } from '../../src/errors.ts';
import { Host, type HostComponents, type HostInit } from '../../src/net/host.ts';
import { generateIdentity } from '../../src/net/identity.ts';
import type { PeerTarget, ProtocolSpec } from '../../src/net/protocols.ts';
import type { MessageStream } from '../../src/net/wire.ts';

/** Long enough for a busy machine; nothing that goes well comes near it. */
export const SOON = { timeoutMs: 8000 };

/** Real hosts on loopback that are stopped with the test. */
export class Rig {
  readonly #hosts: Host[] = [];
  readonly #releases: (() => Promise<void> | void)[] = [];

  async host(init: HostInit = {}, components: Partial<HostComponents> = {}): Promise<Host> {
    const host = new Host({ identity: await generateIdentity(), ...components }, { privateNetwork: true, ...init });
    await host.start(SOON);
    this.#hosts.push(host);
    return host;
  }

  onStop(release: () => Promise<void> | void): void {
    this.#releases.push(release);
  }

  async stop(): Promise<void> {
    for (const release of this.#releases.splice(0)) {
      await release();
    }
    // One after another, and who dialled first: a connection that both ends close waits for a timeout of libp2p's.
    for (const host of this.#hosts.splice(0).toReversed()) {
      await host.stop(SOON);
    }
  }

  /** Two connected hosts and one stream between them. */
  async streams(protocol: ProtocolSpec = ECHO): Promise<{ client: MessageStream; server: MessageStream; hosts: [Host, Host] }> {
    const [there, here] = [await this.host(), await this.host()];
    const accepted = Promise.withResolvers<MessageStream>();
    await there.handle(protocol, async (stream) => accepted.resolve(stream));
    const client = await here.open(targetOf(there), protocol, SOON);
    return { client, server: await accepted.promise, hosts: [here, there] };
  }
}

export const ECHO: ProtocolSpec = {
  id: '/meshnet/test/1', maxInboundStreams: 8, maxOutboundStreams: 8, maxStreamsPerPeer: 8, maxStreams: 8,
};

export function targetOf(host: Host): PeerTarget {
  return { peerId: host.peerId, addresses: host.addresses() };
}

/** The error that it must reject with; its details must contain these. */
export async function rejects(work: Promise<unknown>, code: ErrorCode, details: ErrorDetails = {}): Promise<MeshnetError> {
  const outcome = await work.then((value) => ({ value }), (err: unknown) => ({ err }));
  assert.ok('err' in outcome, `expected ${code}, got a value`);
  const { err } = outcome;
  assert.ok(err instanceof MeshnetError, `expected ${code}, got ${String(err)}`);
  assert.equal(err.code, code, `${err.code}: ${err.message}`);
  assert.deepEqual({ ...err.details, ...details }, err.details);
  return err;
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) {
    all.push(item);
  }
  return all;
}

/** A TCP server that accepts and then does as it is told. */
export async function rawServer(rig: Rig, onSocket: (socket: Socket) => void = () => undefined): Promise<number> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    onSocket(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  rig.onStop(() => {
    for (const socket of sockets) {
      socket.destroy();
    }
    server.close();
  });
  return (server.address() as { port: number }).port;
}

export async function rawSocket(rig: Rig, host: Host): Promise<Socket> {
  const port = Number(/\/tcp\/(\d+)/.exec(host.addresses()[0] ?? '')?.[1]);
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  rig.onStop(() => {
    socket.destroy();
  });
  return socket;
}
