import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { LIMITS } from '../../src/domain/limits.ts';
import { HeaderClient } from '../../src/net/header-client.ts';
import { HEADER, HEADER_MESSAGE_BYTES, HeaderServer, type HeaderSource } from '../../src/net/header-protocol.ts';
import type { Host } from '../../src/net/host.ts';
import { HeaderChunkSchema, HeaderPart, HeaderRequestSchema } from '../../src/proto/peer_pb.js';
import { ManualClock } from './manual-clock.ts';
import { rejects, Rig, SOON, targetOf } from './rig.ts';

const sha256 = (bytes: Uint8Array): Uint8Array => createHash('sha256').update(bytes).digest();
const manifest = new Uint8Array(1000).map((_, i) => i % 251);
const header = new Uint8Array(LIMITS.headerChunkBytes * 2 + 77).map((_, i) => i % 253);
const modelDigest = sha256(manifest);
const model = { modelDigest, headerSha256: sha256(header), headerBytes: header.byteLength };

function sourceOf(bytes: { manifest?: Uint8Array; header?: Uint8Array }, onRead: (offset: number) => void = () => undefined): HeaderSource {
  return {
    manifest: (digest) => Buffer.compare(digest, modelDigest) === 0 ? bytes.manifest : undefined,
    header: () => bytes.header && {
      size: bytes.header.byteLength,
      read: async (offset, length) => {
        onRead(offset);
        return bytes.header?.subarray(offset, offset + length) ?? new Uint8Array();
      },
    },
  };
}

describe('net/header-protocol', () => {
  const rig = new Rig();
  let seeker: Host;
  let client: HeaderClient;

  beforeEach(async () => {
    seeker = await rig.host();
    client = new HeaderClient({ host: seeker });
  });
  afterEach(() => rig.stop());

  async function holder(source: HeaderSource): Promise<Host> {
    const host = await rig.host();
    await new HeaderServer({ host, clock: new ManualClock() }).serve(source);
    return host;
  }

  /** Gives the first chunk and then resets. */
  async function quitter(bytes: Uint8Array): Promise<Host> {
    const host = await rig.host();
    await host.handle(HEADER, async (stream) => {
      await stream.read(HeaderRequestSchema, 256, SOON);
      await stream.write(HeaderChunkSchema, {
        total: BigInt(bytes.byteLength), offset: 0n, data: bytes.subarray(0, LIMITS.headerChunkBytes),
      }, SOON);
      await stream.closeWrite(SOON);
    });
    return host;
  }

  it('fetches the manifest and then the header, both checked', async () => {
    const peer = targetOf(await holder(sourceOf({ manifest, header })));
    assert.ok(Buffer.compare(await client.fetchManifest([peer], modelDigest, SOON), manifest) === 0);
    assert.ok(Buffer.compare(await client.fetchHeader([peer], model, SOON), header) === 0);
  });

  it('goes on with the next holder where one stopped', async () => {
    const read: number[] = [];
    const first = targetOf(await quitter(header));
    const second = targetOf(await holder(sourceOf({ manifest, header }, (offset) => read.push(offset))));
    assert.ok(Buffer.compare(await client.fetchHeader([first, second], model, SOON), header) === 0);
    assert.deepEqual(read, [LIMITS.headerChunkBytes, 2 * LIMITS.headerChunkBytes]);
  });

  it('throws wrong bytes away and asks another holder', async () => {
    const wrong = targetOf(await holder(sourceOf({ manifest: manifest.toReversed(), header: header.toReversed() })));
    const right = targetOf(await holder(sourceOf({ manifest, header })));
    assert.ok(Buffer.compare(await client.fetchManifest([wrong, right], modelDigest, SOON), manifest) === 0);
    assert.ok(Buffer.compare(await client.fetchHeader([wrong, right], model, SOON), header) === 0);
    await rejects(client.fetchManifest([wrong], modelDigest, SOON), 'DIGEST_MISMATCH', { part: 'MANIFEST' });
    await rejects(client.fetchHeader([wrong, wrong], model, SOON), 'DIGEST_MISMATCH', { part: 'HEADER' });
  });

  it('does not blame the right holder for the bytes of a wrong one before it', async () => {
    const liar = targetOf(await quitter(header.toReversed()));
    const right = targetOf(await holder(sourceOf({ manifest, header })));
    assert.ok(Buffer.compare(await client.fetchHeader([liar, right], model, SOON), header) === 0);
    const longer = targetOf(await quitter(new Uint8Array(LIMITS.headerChunkBytes * 2)));
    assert.ok(Buffer.compare(await client.fetchManifest([longer, right], modelDigest, SOON), manifest) === 0);
  });

  it('says what the last holder failed with, or that there is none', async () => {
    const ignorant = targetOf(await holder(sourceOf({})));
    await rejects(client.fetchManifest([ignorant], modelDigest, SOON), 'MODEL_UNKNOWN', { part: 'MANIFEST' });
    await rejects(client.fetchManifest([], modelDigest, SOON), 'SOURCE_UNAVAILABLE');
    const none = await rig.host();
    await rejects(client.fetchHeader([ignorant, targetOf(none)], model, SOON), 'PEER_UNREACHABLE', { reason: 'protocol' });
  });

  it('ends at its deadline and at its abort, while a holder is silent', async () => {
    const silent = await rig.host();
    await silent.handle(HEADER, async () => undefined);
    await rejects(client.fetchManifest([targetOf(silent)], modelDigest, { timeoutMs: 60 }), 'DEADLINE_EXCEEDED');
    await rejects(client.fetchManifest([targetOf(silent)], modelDigest, { signal: AbortSignal.abort() }), 'CANCELLED');
  });

  it('leaves a holder that trickles', async () => {
    const clock = new ManualClock();
    client = new HeaderClient({ host: seeker, clock });
    const slow = await rig.host();
    await slow.handle(HEADER, async (stream) => {
      for (let offset = 0; offset < 10; offset++) {
        clock.advance(15_000);
        const data = manifest.subarray(offset, offset + 1);
        await stream.write(HeaderChunkSchema, { total: BigInt(manifest.byteLength), offset: BigInt(offset), data }, SOON);
      }
    });
    await rejects(client.fetchManifest([targetOf(slow)], modelDigest, SOON), 'DEADLINE_EXCEEDED', { slowest: 16 * 1024 });
  });

  it('refuses chunks that are out of place, empty, too long, or promise too much', async () => {
    const bad = await rig.host();
    const answers = async (chunk: object): Promise<void> => {
      await bad.handle(HEADER, (stream) => stream.write(HeaderChunkSchema, chunk, SOON));
    };
    const data = new Uint8Array(10);
    const fetch = () => client.fetchManifest([targetOf(bad)], modelDigest, SOON);
    for (const chunk of [{ total: 20n, offset: 5n, data }, { total: 20n }, { total: 5n, data }, { total: 300_000n, data: new Uint8Array(LIMITS.headerChunkBytes + 1) }]) {
      await answers(chunk);
      await rejects(fetch(), 'PROTOCOL_VIOLATION');
    }
    await answers({ total: BigInt(LIMITS.manifestBytes + 1), data });
    await rejects(fetch(), 'LIMIT_EXCEEDED', { limit: LIMITS.manifestBytes });
    await answers({ total: 30n, data });
    await rejects(client.fetchHeader([targetOf(bad)], model, SOON), 'DIGEST_MISMATCH');
  });

  it('answers bad requests with an error', async () => {
    const host = targetOf(await holder(sourceOf({ manifest, header })));
    const ask = async (request: object) => {
      const stream = await seeker.open(host, HEADER, SOON);
      await stream.write(HeaderRequestSchema, { version: 1, modelDigest, part: HeaderPart.MANIFEST, ...request }, SOON);
      const { error } = await stream.read(HeaderChunkSchema, HEADER_MESSAGE_BYTES, SOON);
      await stream.close(SOON);
      return error?.code;
    };
    assert.equal(await ask({ version: 2 }), 5);
    assert.equal(await ask({ modelDigest: new Uint8Array(31) }), 6);
    assert.equal(await ask({ offset: 1000n }), 6);
    assert.equal(await ask({ offset: 2n ** 64n - 1n }), 6);
    assert.equal(await ask({ part: HeaderPart.UNSPECIFIED }), 43);
    assert.equal(await ask({ part: 9 }), 43);
    for (let i = 0; i < 10; i++) {
      await ask({ version: 2 });
    }
    assert.equal(await ask({}), 33);
  });

  it('lets go of what it reads from when the seeker leaves in the middle', async () => {
    const closed = Promise.withResolvers<void>();
    const large = new Uint8Array(32 * LIMITS.headerChunkBytes);
    const host = await holder({
      manifest: () => undefined,
      header: () => ({
        size: large.byteLength,
        read: async (offset, length) => large.subarray(offset, offset + length),
        close: async () => closed.resolve(),
      }),
    });
    const stream = await seeker.open(targetOf(host), HEADER, SOON);
    await stream.write(HeaderRequestSchema, { version: 1, modelDigest, part: HeaderPart.HEADER }, SOON);
    await stream.read(HeaderChunkSchema, HEADER_MESSAGE_BYTES, SOON);
    stream.abort();
    await closed.promise;
  });

  it('runs no more transfers of one peer at once than it may have', async () => {
    const gate = Promise.withResolvers<undefined>();
    let running = 0;
    const bothRun = Promise.withResolvers<void>();
    const host = targetOf(await holder({
      manifest: () => {
        running += 1;
        if (running === 2) {
          bothRun.resolve();
        }
        return gate.promise;
      },
      header: () => undefined,
    }));
    const open = async () => {
      const stream = await seeker.open(host, HEADER, SOON);
      await stream.write(HeaderRequestSchema, { version: 1, modelDigest, part: HeaderPart.MANIFEST }, SOON);
      return stream.read(HeaderChunkSchema, HEADER_MESSAGE_BYTES, SOON);
    };
    const [first, second] = [open(), open()];
    await bothRun.promise;
    await rejects(open(), 'STREAM_ENDED');
    gate.resolve(undefined);
    assert.deepEqual([(await first).error?.code, (await second).error?.code], [43, 43]);
  });
});
