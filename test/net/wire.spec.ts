import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import { MeshnetError } from '../../src/errors.ts';
import { DirectoryRequestSchema, PathKind } from '../../src/proto/peer_pb.js';
import type { Stream } from '@libp2p/interface';
import type { Host } from '../../src/net/host.ts';
import { within } from '../../src/net/wait.ts';
import type { MessageStream } from '../../src/net/wire.ts';
import { endOf, rawStream } from './raw-peer.ts';
import { ECHO, rejects, Rig, SOON } from './rig.ts';

const KIB = 1024;
const bytes = (message: Uint8Array | undefined): number[] => [...message ?? [-1]];

describe('net/wire', () => {
  const rig = new Rig();
  afterEach(() => rig.stop());

  it('carries messages in both directions and says who is at the other end', async () => {
    const { client, server, hosts } = await rig.streams();
    await client.write(DirectoryRequestSchema, { layerFirst: 3, layerLast: 5 }, SOON);
    const request = await server.read(DirectoryRequestSchema, 64, SOON);
    assert.deepEqual([request.layerFirst, request.layerLast], [3, 5]);
    const writing = server.writeBytes(new Uint8Array(LIMITS.packetBytes).fill(7), SOON);
    const answer = await client.readBytes(LIMITS.packetBytes, SOON);
    await writing;
    assert.ok(answer?.byteLength === LIMITS.packetBytes && answer.every((byte) => byte === 7));
    assert.equal(client.remotePeer, hosts[1].peerId);
    assert.equal(server.remotePeer, hosts[0].peerId);
    assert.deepEqual([client.path, server.path], [PathKind.LIBP2P, PathKind.LIBP2P]);
  });

  it('delivers what was sent before an orderly end, then says that there is no more', async () => {
    const { client, server } = await rig.streams();
    await client.writeBytes(Uint8Array.of(1), SOON);
    await client.writeBytes(new Uint8Array(0), SOON);
    await client.closeWrite(SOON);
    assert.deepEqual(bytes(await server.readBytes(8, SOON)), [1]);
    assert.deepEqual(bytes(await server.readBytes(8, SOON)), []);
    assert.equal(await server.readBytes(8, SOON), undefined);
    await rejects(server.read(DirectoryRequestSchema, 8, SOON), 'STREAM_ENDED', { reason: 'end' });
    await server.writeBytes(Uint8Array.of(2), SOON);
    assert.deepEqual(bytes(await client.readBytes(8, SOON)), [2]);
    await Promise.all([client.close(SOON), server.close(SOON)]);
    assert.deepEqual([client.open, server.open], [false, false]);
  });

  it('is closed by two at once as soon as the other end has closed too', async () => {
    const { client, server } = await rig.streams();
    const closing = [1, 2].map(() => client.close({ timeoutMs: 60_000 }));
    assert.equal(await server.readBytes(8, SOON), undefined);
    await server.close(SOON);
    await within(Promise.all(closing), 'closing twice', SOON);
    assert.equal(client.open, false);
  });

  it('slows the writer down to the speed of the reader and keeps little of what waits', async () => {
    const { client, server } = await rig.streams();
    const count = 24;
    let written = 0;
    const writing = (async () => {
      for (let i = 0; i < count; i++) {
        await client.writeBytes(new Uint8Array(LIMITS.packetBytes).fill(i), { timeoutMs: 30_000 });
        written++;
      }
      await client.closeWrite(SOON);
    })();
    // Every read lets some more through; at no time may much more than a window and the read-ahead wait here.
    let most = 0;
    for (let i = 0; i < count; i++) {
      const packet = await server.readBytes(LIMITS.packetBytes, SOON);
      assert.equal(packet?.[LIMITS.packetBytes - 1], i);
      assert.ok(written - i <= 4, `${written - i} packets ahead of the reader`);
      most = Math.max(most, server.waitingBytes);
    }
    assert.equal(await server.readBytes(1, SOON), undefined);
    await writing;
    assert.ok(most <= 2560 * KIB, `${most} bytes waited`);
  });

  it('does not let a writer finish while nobody reads, and says so at its deadline', async () => {
    const { client, server } = await rig.streams();
    const flood = (async () => {
      for (let i = 0; i < 16; i++) {
        await client.writeBytes(new Uint8Array(LIMITS.packetBytes), { timeoutMs: 300 });
      }
    })();
    await rejects(flood, 'DEADLINE_EXCEEDED', { timeoutMs: 300 });
    assert.ok(server.waitingBytes <= 3 * LIMITS.packetBytes);
    await rejects(client.writeBytes(Uint8Array.of(1), SOON), 'DEADLINE_EXCEEDED');
  });

  it('refuses a message that is longer than its limit before it takes its bytes', async () => {
    const { client, server } = await rig.streams();
    await client.writeBytes(new Uint8Array(65), SOON);
    await rejects(server.readBytes(64, SOON), 'FRAME_TOO_LARGE', { bytes: 65, limit: 64 });
    await rejects(client.readBytes(64, SOON), 'STREAM_ENDED', { reason: 'reset' });
  });

  it('refuses to send a message that nobody would take', async () => {
    const { client } = await rig.streams();
    const tooLong = new Uint8Array(LIMITS.packetBytes + 1);
    await rejects(client.writeBytes(tooLong, SOON), 'FRAME_TOO_LARGE', { limit: LIMITS.packetBytes });
    assert.ok(client.open);
  });

  it('refuses bytes that are no message of the schema', async () => {
    const { client, server } = await rig.streams();
    await client.writeBytes(Uint8Array.of(0xff, 0xff, 0xff), SOON);
    await rejects(server.read(DirectoryRequestSchema, 64, SOON), 'MALFORMED');
    assert.ok(!server.open);
  });

  it('ends a read at its deadline when the other end is silent', async () => {
    const { client, server } = await rig.streams();
    await rejects(client.readBytes(64, { timeoutMs: 30 }), 'DEADLINE_EXCEEDED', { timeoutMs: 30 });
    await rejects(server.readBytes(64, SOON), 'STREAM_ENDED', { reason: 'reset' });
  });

  it('ends a read when its signal aborts, with the reason that the signal has', async () => {
    const { client } = await rig.streams();
    const controller = new AbortController();
    const read = client.readBytes(64, { signal: controller.signal });
    controller.abort(new MeshnetError('DRAINING'));
    await rejects(read, 'DRAINING');
    const { client: other } = await rig.streams();
    await rejects(other.readBytes(64, { signal: AbortSignal.abort() }), 'CANCELLED');
    await rejects(other.writeBytes(Uint8Array.of(1), SOON), 'CANCELLED');
  });

  it('still gives what arrived before a reset, then the reset', async () => {
    const { client, server } = await rig.streams();
    await client.writeBytes(Uint8Array.of(5), SOON);
    assert.deepEqual(bytes(await server.readBytes(8, SOON)), [5]);
    await client.writeBytes(Uint8Array.of(6), SOON);
    const closed = new Promise<void>((resolve) => server.onClose(resolve));
    client.abort();
    await closed;
    assert.deepEqual(bytes(await server.readBytes(8, SOON)), [6]);
    await rejects(server.readBytes(8, SOON), 'STREAM_ENDED', { reason: 'reset' });
    await rejects(server.writeBytes(Uint8Array.of(1), SOON), 'STREAM_ENDED');
  });

  it('keeps the order of writers that do not wait for each other, and bounds what waits', async () => {
    const { client, server } = await rig.streams();
    const half = LIMITS.packetBytes / 2;
    const writes = [1, 2, 3, 4].map((i) => client.writeBytes(new Uint8Array(half).fill(i), SOON));
    await rejects(client.writeBytes(new Uint8Array(half), SOON), 'RESOURCE_EXHAUSTED');
    for (const i of [1, 2, 3, 4]) {
      assert.equal((await server.readBytes(LIMITS.packetBytes, SOON))?.[0], i);
    }
    await Promise.all(writes);
  });

  it('resets a stream whose other end does not close in time', async () => {
    const { client, server } = await rig.streams();
    await client.close({ timeoutMs: 30 });
    assert.ok(!client.open);
    assert.equal(await server.readBytes(8, SOON).catch((err: MeshnetError) => err.code), undefined);
  });

  it('gives both ends an error when the connection breaks', async () => {
    const { client, server, hosts } = await rig.streams();
    const reads = [rejects(client.readBytes(8, SOON), 'STREAM_ENDED'), rejects(server.readBytes(8, SOON), 'STREAM_ENDED')];
    await hosts[0].ban(hosts[1].peerId, 1000);
    await Promise.all(reads);
  });

  describe('with a peer that does not frame its bytes as it should', () => {
    let host: Host;
    let raw: Stream;
    let stream: MessageStream;

    beforeEach(async () => {
      host = await rig.host();
      const accepted = Promise.withResolvers<MessageStream>();
      await host.handle(ECHO, async (taken) => accepted.resolve(taken));
      raw = await rawStream(rig, host, ECHO.id);
      stream = await accepted.promise;
    });

    it('takes a message that comes a byte at a time', async () => {
      const reading = stream.readBytes(8, SOON);
      for (const byte of [3, 7, 8, 9]) {
        raw.send(Uint8Array.of(byte));
      }
      assert.deepEqual(bytes(await reading), [7, 8, 9]);
    });

    it('takes several messages of one piece', async () => {
      raw.send(Uint8Array.of(1, 5, 0, 2, 6, 7));
      assert.deepEqual(bytes(await stream.readBytes(8, SOON)), [5]);
      assert.deepEqual(bytes(await stream.readBytes(8, SOON)), []);
      assert.deepEqual(bytes(await stream.readBytes(8, SOON)), [6, 7]);
    });

    it('does not wait longer for the rest of a message than for a whole one', async () => {
      raw.send(Uint8Array.of(4, 1, 2));
      await rejects(stream.readBytes(8, { timeoutMs: 40 }), 'DEADLINE_EXCEEDED');
      assert.equal(await endOf(raw), 'reset');
    });

    it('refuses a length that is far too long without waiting for its bytes', async () => {
      raw.send(Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0x0f));
      await rejects(stream.readBytes(8, SOON), 'FRAME_TOO_LARGE');
      assert.equal(await endOf(raw), 'reset');
    });

    it('refuses a length that is no number', async () => {
      raw.send(new Uint8Array(32).fill(0x80));
      await rejects(stream.readBytes(8, SOON), 'MALFORMED');
      assert.equal(await endOf(raw), 'reset');
    });

    it('tells an end inside a message from an orderly one', async () => {
      raw.send(Uint8Array.of(4, 1, 2));
      await raw.close();
      await rejects(stream.readBytes(8, SOON), 'STREAM_ENDED', { reason: 'truncated' });
    });

    it('says that the stream was reset when that happens inside a message', async () => {
      raw.send(Uint8Array.of(4, 1, 2));
      const reading = rejects(stream.readBytes(8, SOON), 'STREAM_ENDED', { reason: 'reset' });
      raw.abort(new Error('gone'));
      await reading;
    });

    it('keeps the memory of a flood within the window when nobody reads', async () => {
      const flood = new Uint8Array(8 * LIMITS.packetBytes);
      raw.send(flood);
      const { client, server } = await rig.streams();
      await client.writeBytes(Uint8Array.of(1), SOON);
      assert.deepEqual(bytes(await server.readBytes(8, SOON)), [1]);
      assert.ok(stream.waitingBytes <= 2 * LIMITS.packetBytes, `${stream.waitingBytes} bytes`);
      assert.ok(stream.open);
    });

    it('leaves nothing unhandled when bytes come after the stream was given up', async () => {
      stream.abort();
      raw.send(new Uint8Array(LIMITS.framePayloadBytes));
      assert.equal(await endOf(raw), 'reset');
      await rejects(stream.readBytes(8, SOON), 'CANCELLED');
    });
  });
});
