import { LIMITS } from '../domain/limits.ts';
import { toWireError } from '../domain/wire-error.ts';
import { MeshnetError } from '../errors.ts';
import { HeaderChunkSchema, HeaderPart, HeaderRequestSchema, type HeaderRequest } from '../proto/peer_pb.js';
import { checkBytes } from './admission-checks.ts';
import { systemClock, type Clock } from './clock.ts';
import type { StreamAcceptor } from './host.ts';
import type { ProtocolSpec } from './protocols.ts';
import { RateLimit } from './rate-limit.ts';
import type { MessageStream } from './wire.ts';

/** A transfer keeps a disk and an uplink busy, so that few run at once. */
export const HEADER: ProtocolSpec = Object.freeze({
  id: '/meshnet/header/1',
  maxInboundStreams: 2,
  maxOutboundStreams: 4,
  maxStreamsPerPeer: 2,
  maxStreams: 8,
});

export const HEADER_VERSION = 1;
const HEADER_REQUEST_BYTES = 256;
/** A chunk and its numbers, or an error. */
export const HEADER_MESSAGE_BYTES = LIMITS.headerChunkBytes + 4096;
/** One chunk on its way: 13 KiB/s, or the transfer is not worth a place. */
export const CHUNK_MS = 20_000;

/** Manifest, header, and both again when they were interrupted, of a few models. */
const REQUEST_BURST = 16;
const REQUESTS_PER_SECOND = 0.5;

/** Bytes that can be read in pieces: a file. */
export interface HeaderBytes {
  readonly size: number;
  /** Exactly `length` bytes from `offset`. */
  read(offset: number, length: number): Promise<Uint8Array>;
  /** Called once for each that a source gave, when the transfer has ended either way. */
  close?(): Promise<void>;
}

/** What a node can give of the models it holds, by model digest. */
export interface HeaderSource {
  manifest(modelDigest: Uint8Array): Promise<Uint8Array | undefined> | Uint8Array | undefined;
  header(modelDigest: Uint8Array): Promise<HeaderBytes | undefined> | HeaderBytes | undefined;
}

/** Gives manifests and GGUF headers to nodes that have no weights. */
export class HeaderServer {
  readonly #host: StreamAcceptor;
  readonly #rate: RateLimit;

  constructor({ host, clock = systemClock }: { host: StreamAcceptor; clock?: Clock }) {
    this.#host = host;
    this.#rate = new RateLimit({ burst: REQUEST_BURST, perSecond: REQUESTS_PER_SECOND, clock });
  }

  async serve(source: HeaderSource): Promise<void> {
    await this.#host.handle(HEADER, (stream) => this.#answer(stream, source));
  }

  async #answer(stream: MessageStream, source: HeaderSource): Promise<void> {
    try {
      const request = await stream.read(HeaderRequestSchema, HEADER_REQUEST_BYTES, { timeoutMs: CHUNK_MS });
      this.#rate.take(stream.remotePeer);
      const bytes = await find(request, source);
      try {
        checkStart(request, bytes);
        await send(stream, bytes, Number(request.offset));
      } finally {
        await bytes.close?.();
      }
    } catch (err) {
      if (!stream.open) {
        throw err;
      }
      await stream.write(HeaderChunkSchema, { error: toWireError(err) }, { timeoutMs: CHUNK_MS });
    }
    await stream.close({ timeoutMs: CHUNK_MS });
  }
}

async function find(request: HeaderRequest, source: HeaderSource): Promise<HeaderBytes> {
  if (request.version !== HEADER_VERSION) {
    throw new MeshnetError('VERSION_UNSUPPORTED', undefined, {
      details: { version: request.version, supported: HEADER_VERSION },
    });
  }
  checkBytes('modelDigest', request.modelDigest, LIMITS.digestBytes);
  const bytes = request.part === HeaderPart.MANIFEST
    ? inMemory(await source.manifest(request.modelDigest))
    : request.part === HeaderPart.HEADER ? await source.header(request.modelDigest) : undefined;
  if (bytes === undefined) {
    throw new MeshnetError('MODEL_UNKNOWN', 'this node has nothing of that model to give', {
      details: { part: HeaderPart[request.part] ?? request.part },
    });
  }
  return bytes;
}

function checkStart(request: HeaderRequest, { size }: HeaderBytes): void {
  if (request.offset >= BigInt(size)) {
    throw new MeshnetError('MALFORMED', 'a transfer cannot start there', {
      details: { field: 'offset', offset: request.offset, total: size },
    });
  }
}

async function send(stream: MessageStream, bytes: HeaderBytes, from: number): Promise<void> {
  for (let offset = from; offset < bytes.size;) {
    const data = await bytes.read(offset, Math.min(LIMITS.headerChunkBytes, bytes.size - offset));
    const chunk = { total: BigInt(bytes.size), offset: BigInt(offset), data };
    await stream.write(HeaderChunkSchema, chunk, { timeoutMs: CHUNK_MS });
    offset += data.byteLength;
  }
}

function inMemory(bytes: Uint8Array | undefined): HeaderBytes | undefined {
  return bytes && {
    size: bytes.byteLength,
    read: async (offset, length) => bytes.subarray(offset, offset + length),
  };
}
