import { createHash } from 'node:crypto';
import { LIMITS } from '../domain/limits.ts';
import { fromWireError } from '../domain/wire-error.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { HeaderChunkSchema, HeaderPart, HeaderRequestSchema, type HeaderChunk } from '../proto/peer_pb.js';
import { systemClock, type Clock } from './clock.ts';
import { CHUNK_MS, HEADER, HEADER_MESSAGE_BYTES, HEADER_VERSION } from './header-protocol.ts';
import type { StreamOpener } from './host.ts';
import { silentLog, type NetLog } from './log.ts';
import type { PeerTarget } from './protocols.ts';
import { abortError, signalOf, type WaitOptions } from './wait.ts';

/** A holder that is slower, after its first seconds, is left for the next one. Bytes per second. */
const SLOWEST = 16 * 1024;
const FIRST_SECONDS_MS = 20_000;
/** Holders that are asked before it is given up. */
const HOLDERS = 16;

export interface HeaderClientComponents {
  host: StreamOpener;
  /** Of the slowest rate. */
  clock?: Clock;
  log?: NetLog;
}

export type Holders = AsyncIterable<PeerTarget> | Iterable<PeerTarget>;

interface Part {
  readonly modelDigest: Uint8Array;
  readonly part: HeaderPart;
  /** SHA-256 of the whole. */
  readonly digest: Uint8Array;
  /** Bytes, when they are known; otherwise what the holder says, up to `most`. */
  readonly total?: number;
  readonly most: number;
}

/** Bytes that have arrived of a part. */
interface Progress {
  chunks: Uint8Array[];
  received: number;
  total: number | undefined;
  /** Holders that they are from. */
  givers: Set<string>;
}

/** Fetches manifests and GGUF headers from peers that hold the model, one after another until one is right. */
export class HeaderClient {
  readonly #host: StreamOpener;
  readonly #clock: Clock;
  readonly #log: NetLog;

  constructor({ host, clock = systemClock, log = silentLog }: HeaderClientComponents) {
    this.#host = host;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * The encoded manifest whose SHA-256 is the model digest.
   *
   * @throws {MeshnetError} DIGEST_MISMATCH when a holder gave something else and no other was right, otherwise what the
   *   last one failed with; SOURCE_UNAVAILABLE when there was none; DEADLINE_EXCEEDED, CANCELLED
   */
  fetchManifest(holders: Holders, modelDigest: Uint8Array, options: WaitOptions): Promise<Uint8Array> {
    const part = { modelDigest, part: HeaderPart.MANIFEST, digest: modelDigest, most: LIMITS.manifestBytes };
    return this.#fetch(holders, part, options);
  }

  /**
   * The file's bytes before the tensor data, checked against what the manifest says of them. Resumes with another holder
   * where one stopped. Throws as `fetchManifest`.
   */
  fetchHeader(
    holders: Holders, model: { modelDigest: Uint8Array; headerSha256: Uint8Array; headerBytes: number }, options: WaitOptions,
  ): Promise<Uint8Array> {
    const { modelDigest, headerSha256, headerBytes } = model;
    const part = {
      modelDigest, part: HeaderPart.HEADER, digest: headerSha256, total: headerBytes, most: LIMITS.headerBytes,
    };
    return this.#fetch(holders, part, options);
  }

  async #fetch(holders: Holders, part: Part, options: WaitOptions): Promise<Uint8Array> {
    const signal = signalOf(options);
    let failure: MeshnetError | undefined;
    let progress = emptyProgress(part);
    let asked = 0;
    for await (const holder of holders) {
      if (asked++ >= HOLDERS || signal.aborted) {
        break;
      }
      // Twice when some of the bytes were another's: alone, a holder shows whether it is right.
      for (let round = 0; round < 2; round++) {
        try {
          await this.#download(holder, part, { progress, signal });
          return verified(progress, part);
        } catch (err) {
          const error = toMeshnetError(err);
          this.#log.debug({ peer: holder.peerId, code: error.code, details: error.details }, 'a holder could not give it');
          const isWrong = error.code === 'DIGEST_MISMATCH';
          const isMixed = [...progress.givers].some((peerId) => peerId !== holder.peerId);
          failure = failure?.code === 'DIGEST_MISMATCH' ? failure : error;
          // Only under a known length can another holder go on where this one stopped.
          progress = isWrong || part.total === undefined ? emptyProgress(part) : progress;
          if (!isWrong || !isMixed || signal.aborted) {
            break;
          }
        }
      }
    }
    if (signal.aborted) {
      throw abortError(signal, 'fetching a header');
    }
    throw failure ?? new MeshnetError('SOURCE_UNAVAILABLE', 'no peer that holds the model was found', {
      details: { part: HeaderPart[part.part] },
    });
  }

  /** Continues `progress` with one holder, to the end or to an error. */
  async #download(
    holder: PeerTarget, part: Part, { progress, signal }: { progress: Progress; signal: AbortSignal },
  ): Promise<void> {
    const startedMs = this.#clock.now();
    const before = progress.received;
    const wait = { signal, timeoutMs: CHUNK_MS };
    const stream = await this.#host.open(holder, HEADER, wait);
    try {
      await stream.write(HeaderRequestSchema, {
        version: HEADER_VERSION, modelDigest: part.modelDigest, part: part.part, offset: BigInt(before),
      }, wait);
      while (progress.received !== progress.total) {
        const chunk = await stream.read(HeaderChunkSchema, HEADER_MESSAGE_BYTES, wait);
        progress.givers.add(holder.peerId);
        take(chunk, progress, part);
        this.#checkRate(progress.received - before, startedMs);
      }
    } catch (err) {
      stream.abort(toMeshnetError(err));
      throw err;
    }
    void stream.close({ timeoutMs: CHUNK_MS });
  }

  #checkRate(received: number, startedMs: number): void {
    const tookMs = this.#clock.now() - startedMs;
    if (received < (tookMs - FIRST_SECONDS_MS) * SLOWEST / 1000) {
      throw new MeshnetError('DEADLINE_EXCEEDED', 'a holder is too slow', { details: { tookMs, received, slowest: SLOWEST } });
    }
  }
}

function emptyProgress({ total }: Part): Progress {
  return { chunks: [], received: 0, total, givers: new Set() };
}

function take({ total, offset, data, error }: HeaderChunk, progress: Progress, part: Part): void {
  if (error !== undefined) {
    throw fromWireError(error);
  }
  const bytes = Number(total);
  if (bytes > part.most) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'a transfer is larger than any may be', {
      details: { field: 'total', count: bytes, limit: part.most },
    });
  }
  progress.total ??= bytes;
  // Another length is another file, whatever its bytes are.
  if (progress.total !== bytes) {
    throw mismatch(part, { bytes, expectedBytes: progress.total });
  }
  const fits = Number(offset) === progress.received && data.byteLength > 0
    && data.byteLength <= LIMITS.headerChunkBytes && progress.received + data.byteLength <= bytes;
  if (!fits) {
    throw new MeshnetError('PROTOCOL_VIOLATION', 'a chunk is out of place', {
      details: { offset: Number(offset), bytes: data.byteLength, expectedOffset: progress.received },
    });
  }
  progress.chunks.push(data);
  progress.received += data.byteLength;
}

function verified(progress: Progress, part: Part): Uint8Array {
  const whole = Buffer.concat(progress.chunks);
  if (Buffer.compare(createHash('sha256').update(whole).digest(), part.digest) !== 0) {
    throw mismatch(part, { bytes: whole.byteLength });
  }
  return whole;
}

function mismatch(part: Part, facts: object): MeshnetError {
  return new MeshnetError('DIGEST_MISMATCH', 'a peer gave something else than was asked for', {
    details: { part: HeaderPart[part.part], ...facts },
  });
}
