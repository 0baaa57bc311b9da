import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { PathKind, SeamEnd } from '../../src/proto/peer_pb.js';
import { carryToWorker } from '../../src/worker/bridge-client.ts';
import { BridgeServer, type ExpectedBridge } from '../../src/worker/bridge-server.ts';
import { fromCallError } from '../../src/worker/grpc-error.ts';
import type { BridgeDestination, PacketDuplex } from '../../src/worker/packet-duplex.ts';
import { packetPair } from '../../src/worker/packet-pair.ts';
import type { PumpLimits } from '../../src/worker/pump.ts';

type ServerCall = grpc.ServerDuplexStream<Buffer, Buffer>;
type ClientCall = grpc.ClientDuplexStream<Buffer, Buffer>;

const METHOD = '/meshnet.seam.v1.Seam/Stream';
const same = (bytes: Buffer): Buffer => bytes;
const PACKET_BYTES = 64 * 1024;

describe('worker/bridge', function () {
  this.timeout(30_000);

  const folder = mkdtempSync(join(tmpdir(), 'meshnet-bridge-'));
  const destination: BridgeDestination = {
    peerId: 'the-other-node',
    addresses: ['/ip4/127.0.0.1/tcp/1'],
    lane: { session: new Uint8Array(16).fill(1), epoch: 1, stage: 1 },
    end: SeamEnd.TO_PREVIOUS,
    ticket: randomBytes(32),
  };
  const token = randomBytes(32);
  const listener = { socketPath: join(folder, 'worker'), token };
  let server: grpc.Server;
  let onCall: (call: ServerCall) => void;
  let bridge: BridgeServer | undefined;
  let client: grpc.Client | undefined;
  let life: AbortController;
  /** What the listening node's side of each bridge ended with. */
  let carried: Promise<MeshnetError | undefined>[];
  let dialled: BridgeDestination[];
  let farEnd: PacketDuplex | undefined;

  before(async () => {
    server = new grpc.Server();
    server.register(METHOD, (call: ServerCall) => {
      call.on('error', () => undefined);
      onCall(call);
    }, same, same, 'bidi');
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(`unix:${listener.socketPath}`, grpc.ServerCredentials.createInsecure(), (err) => {
        if (err === null) {
          resolve();
        } else {
          reject(err);
        }
      });
    });
  });

  after(() => {
    server.forceShutdown();
    rmSync(folder, { recursive: true, force: true });
  });

  beforeEach(() => {
    life = new AbortController();
    carried = [];
    dialled = [];
    farEnd = undefined;
    onCall = () => assert.fail('nobody should have called');
  });

  afterEach(async () => {
    life.abort();
    client?.close();
    await bridge?.stop();
    bridge = undefined;
  });

  /** Both nodes: the bridge of the dialling one, and the listening one's carrying to its worker. */
  async function start(limits: PumpLimits = {}, dial?: () => Promise<PacketDuplex>): Promise<void> {
    bridge = new BridgeServer({
      dialer: {
        dial: dial ?? (async (to) => {
          dialled.push(to);
          const [near, far] = packetPair();
          farEnd = far;
          const { ticket } = destination;
          const seam = { target: listener, ticket, peerId: 'the-dialling-node', packets: far, limits };
          carried.push(carryToWorker(seam, { signal: life.signal }));
          return near;
        }),
      },
    }, { runtimeDir: folder, limits, dialTimeoutMs: 200 });
    await bridge.start();
  }

  function call(id: Uint8Array): ClientCall {
    client = new grpc.Client(`unix:${bridge?.socketPath}`, grpc.credentials.createInsecure());
    const metadata = new grpc.Metadata();
    metadata.set('meshnet-bridge-bin', Buffer.from(id));
    return client.makeBidiStreamRequest<Buffer, Buffer>(METHOD, same, same, metadata);
  }

  function open(): { stream: ClientCall; expected: ExpectedBridge } {
    const expected = bridge?.expect(destination, { signal: life.signal }) ?? assert.fail();
    return { stream: call(expected.id), expected };
  }

  /** All messages and how the call ended. */
  async function drain(stream: ClientCall): Promise<{ packets: Buffer[]; error?: MeshnetError }> {
    const packets: Buffer[] = [];
    try {
      for await (const packet of stream.iterator({ destroyOnReturn: false })) {
        packets.push(packet as Buffer);
      }
    } catch (err) {
      return { packets, error: fromCallError(err, 'Stream') };
    }
    return { packets };
  }

  const echo = (stream: ServerCall): void => {
    stream.on('data', (packet: Buffer) => stream.write(packet));
    stream.on('end', () => stream.end());
  };

  it('carries packets in both directions unchanged and in order, to the worker that the ticket is for', async () => {
    let seen: grpc.Metadata | undefined;
    onCall = (stream) => {
      seen = stream.metadata;
      echo(stream);
    };
    await start();
    const { stream, expected } = open();
    const sent = Array.from({ length: 50 }, (_, i) => randomBytes(i * 700));
    for (const packet of sent) {
      stream.write(packet);
    }
    stream.end();
    const { packets, error } = await drain(stream);
    assert.equal(error, undefined);
    assert.deepEqual(packets, sent);
    assert.deepEqual(dialled, [destination]);
    assert.equal(expected.path, PathKind.LOCAL);
    assert.equal(expected.failure, undefined);
    assert.deepEqual(seen?.get('meshnet-ticket-bin'), [Buffer.from(destination.ticket)]);
    assert.deepEqual(seen?.get('meshnet-peer'), ['the-dialling-node']);
    assert.deepEqual(seen?.get('meshnet-token-bin'), [token]);
    assert.deepEqual(await Promise.all(carried), [undefined]);
  });

  it('carries a half-close, after which the other direction goes on', async () => {
    onCall = (stream) => {
      stream.resume().once('end', () => {
        stream.write(Buffer.from('after your end'));
        stream.end();
      });
    };
    await start();
    const { stream } = open();
    stream.write(Buffer.from('one'));
    stream.end();
    const { packets, error } = await drain(stream);
    assert.equal(error, undefined);
    assert.deepEqual(packets.map(String), ['after your end']);
  });

  it('slows the sender down to the speed of the receiver', async () => {
    const packets = 600;
    let received = 0;
    let held: ServerCall | undefined;
    onCall = (stream) => {
      held = stream.pause();
    };
    await start();
    const { stream } = open();
    const rss = process.memoryUsage.rss();
    let flushed = 0;
    const stalled = Promise.withResolvers<void>();
    let quiet: NodeJS.Timeout | undefined;
    const onFlushed = (): void => {
      flushed++;
      clearTimeout(quiet);
      quiet = setTimeout(() => stalled.resolve(), 300);
    };
    for (let i = 0; i < packets; i++) {
      const packet = Buffer.alloc(PACKET_BYTES);
      packet.writeUInt32LE(i);
      stream.write(packet, onFlushed);
    }
    stream.end();
    await stalled.promise;
    assert.ok(flushed < packets / 3, `${flushed} of ${packets} packets were taken while nobody read`);
    assert.ok(process.memoryUsage.rss() - rss < 128 * 1024 * 1024);
    held?.on('data', (packet: Buffer) => assert.equal(packet.readUInt32LE(), received++));
    held?.on('end', () => held?.end());
    held?.resume();
    assert.equal((await drain(stream)).error, undefined);
    assert.equal(received, packets);
    clearTimeout(quiet);
  });

  it('refuses a bridge that nobody expects, and each one the second time', async () => {
    onCall = echo;
    await start();
    for (const id of [randomBytes(16), Buffer.alloc(0), randomBytes(3)]) {
      assert.equal((await drain(call(id))).error?.code, 'TICKET_INVALID');
    }
    const { stream, expected } = open();
    stream.on('error', () => undefined);
    stream.write(Buffer.from('x'));
    await once(stream, 'data');
    assert.equal((await drain(call(expected.id))).error?.code, 'TICKET_INVALID');
    stream.cancel();
    const unused = bridge?.expect(destination, { signal: life.signal }) ?? assert.fail();
    unused.forget();
    assert.equal((await drain(call(unused.id))).error?.code, 'TICKET_INVALID');
    const ofDeadLane = bridge?.expect(destination, { signal: AbortSignal.abort() }) ?? assert.fail();
    assert.equal((await drain(call(ofDeadLane.id))).error?.code, 'TICKET_INVALID');
  });

  it('refuses more bridges than the limit', async () => {
    bridge = new BridgeServer({ dialer: { dial: () => assert.fail() } }, { runtimeDir: folder, maxBridges: 2 });
    await bridge.start();
    bridge.expect(destination, { signal: life.signal });
    bridge.expect(destination, { signal: life.signal });
    assert.throws(() => bridge?.expect(destination, { signal: life.signal }),
      (err) => isMeshnetError(err, 'RESOURCE_EXHAUSTED'));
  });

  it('tells the worker what the other node refused with', async () => {
    await start({}, () => Promise.reject(new MeshnetError('LANE_NOT_OPEN', undefined, { details: { stage: 1 } })));
    const { stream, expected } = open();
    const { error } = await drain(stream);
    assert.equal(error?.code, 'LANE_NOT_OPEN');
    assert.equal(expected.failure?.code, 'LANE_NOT_OPEN');
    assert.equal(expected.path, PathKind.UNSPECIFIED);
  });

  it('does not wait for ever for a node that does not answer', async () => {
    let given: AbortSignal | undefined;
    await start();
    const silent = new BridgeServer({
      dialer: {
        dial: (_to, { signal }) => {
          given = signal;
          return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
        },
      },
    }, { runtimeDir: folder, dialTimeoutMs: 50 });
    await bridge?.stop();
    bridge = silent;
    await silent.start();
    const { stream } = open();
    assert.equal((await drain(stream)).error?.code, 'DEADLINE_EXCEEDED');
    assert.equal(given?.aborted, true);
  });

  it('ends the stream at the other node when a worker drops it, after what it had sent', async () => {
    const got: string[] = [];
    const gone = Promise.withResolvers<void>();
    onCall = (stream) => {
      stream.on('data', (packet: Buffer) => {
        got.push(packet.toString());
        stream.write(packet);
      });
      stream.once('end', () => {
        gone.resolve();
        stream.end();
      });
    };
    await start();
    const { stream } = open();
    stream.on('error', () => undefined);
    stream.write(Buffer.from('last words'));
    await once(stream, 'data');
    stream.cancel();
    await gone.promise;
    assert.deepEqual(got, ['last words']);
    await Promise.all(carried);
  });

  it('passes on what a worker said before it broke the stream', async () => {
    onCall = (stream) => {
      stream.write(Buffer.from('an Error frame'));
      stream.emit('error', Object.assign(new Error('broken'), { code: grpc.status.ABORTED }));
    };
    await start();
    const { stream } = open();
    stream.write(Buffer.from('x'));
    const { packets } = await drain(stream);
    assert.deepEqual(packets.map(String), ['an Error frame']);
    const [fault] = await Promise.all(carried);
    assert.equal(fault?.code, 'INTERNAL');
  });

  it('breaks the worker\'s stream when the one between the nodes breaks', async () => {
    onCall = echo;
    await start();
    const { stream } = open();
    stream.write(Buffer.from('x'));
    await once(stream, 'data');
    farEnd?.abort(new MeshnetError('STREAM_ENDED', 'reset'));
    assert.equal((await drain(stream)).error?.code, 'STREAM_ENDED');
    assert.equal((await Promise.all(carried))[0]?.code, 'STREAM_ENDED');
  });

  it('breaks the worker\'s stream when a packet cannot be written', async () => {
    const [near] = packetPair();
    await start({ lingerMs: 50 }, async () => ({
      path: near.path,
      read: () => near.read(),
      write: () => Promise.reject(new MeshnetError('STREAM_ENDED')),
      close: (options) => near.close(options),
      abort: (err) => near.abort(err),
    }));
    const { stream, expected } = open();
    stream.write(Buffer.from('x'));
    assert.equal((await drain(stream)).error?.code, 'STREAM_ENDED');
    await bridge?.stop();
    assert.equal(expected.failure?.code, 'STREAM_ENDED');
  });

  it('ends both streams when the lane ends', async () => {
    const ended = Promise.withResolvers<void>();
    onCall = (stream) => {
      echo(stream);
      stream.once('cancelled', () => ended.resolve());
    };
    await start();
    const { stream } = open();
    stream.write(Buffer.from('x'));
    await once(stream, 'data');
    life.abort(new MeshnetError('LEASE_EXPIRED'));
    assert.equal((await drain(stream)).error?.code, 'LEASE_EXPIRED');
    await ended.promise;
    assert.equal((await Promise.all(carried))[0]?.code, 'LEASE_EXPIRED');
  });

  it('ends when the node stops', async () => {
    onCall = echo;
    await start();
    const { stream, expected } = open();
    stream.write(Buffer.from('x'));
    await once(stream, 'data');
    const rest = drain(stream);
    await bridge?.stop();
    assert.ok((await rest).error !== undefined);
    assert.equal(expected.failure?.code, 'CANCELLED');
    assert.throws(() => bridge?.socketPath, (err) => isMeshnetError(err, 'ALREADY_STOPPED'));
  });

  it('ends when no first packet comes', async () => {
    onCall = (stream) => stream.resume();
    await start({ firstByteMs: 50 });
    const { stream, expected } = open();
    stream.write(Buffer.from('x'));
    const { error } = await drain(stream);
    assert.equal(error?.code, 'SEAM_TIMEOUT');
    assert.match(String(expected.failure?.details['limit']), /^first-/);
  });

  it('ends when nothing comes for too long', async () => {
    onCall = echo;
    await start({ idleMs: 80 });
    const { stream, expected } = open();
    stream.write(Buffer.from('x'));
    assert.equal((await drain(stream)).error?.code, 'SEAM_TIMEOUT');
    assert.equal(expected.failure?.details['limit'], 'idle');
  });

  it('ends when a packet is not taken for too long', async () => {
    onCall = (stream) => {
      stream.write(Buffer.from('first'));
      stream.pause();
    };
    await start({ stallMs: 100 });
    const { stream, expected } = open();
    for (let i = 0; i < 200; i++) {
      stream.write(Buffer.alloc(PACKET_BYTES));
    }
    assert.equal((await drain(stream)).error?.code, 'SEAM_TIMEOUT');
    assert.match(String(expected.failure?.details['limit']), /^stall-/);
  });

  it('ends when only one direction has ended for too long', async () => {
    onCall = (stream) => {
      stream.write(Buffer.from('first'));
      stream.resume();
    };
    await start({ lingerMs: 50 });
    const { stream } = open();
    stream.write(Buffer.from('x'));
    stream.end();
    assert.equal((await drain(stream)).error?.code, 'STREAM_ENDED');
  });
});
