import { create, fromBinary, toBinary, type DescMessage, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import type { Stream } from '@libp2p/interface';
import { decode, encode } from 'it-length-prefixed';
import { pipe } from 'it-pipe';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import type { PathKind } from '../proto/peer_pb.js';
import { StreamSource, type Chunk } from './stream-source.ts';
import { within, type WaitOptions } from './wait.ts';

/** Taken from the stream ahead of the reader: a frame's payload, so that a decode step never waits for a pull. */
const READ_AHEAD_BYTES = LIMITS.framePayloadBytes;
/** Messages that may wait for their turn to be written, in bytes: two of the largest. */
const WRITE_QUEUE_BYTES = 2 * LIMITS.packetBytes;
/** Nesting of a message; ours need 4. */
const RECURSION_LIMIT = 8;

/** Who is at the other end, and how the bytes get there. */
export interface StreamFacts {
  /** As Noise authenticated it. */
  readonly remotePeer: string;
  readonly path: PathKind;
}

/**
 * Length-prefixed messages on a libp2p stream, with limits and back-pressure in both directions.
 *
 * One reader at a time; writers queue. A wait that fails, by deadline, signal or a broken message, resets the stream,
 * because half a message cannot be continued. What the other end sent before it closed or reset can still be read.
 */
export class MessageStream {
  readonly remotePeer: string;
  readonly path: PathKind;
  readonly #stream: Stream;
  readonly #source: StreamSource;
  readonly #messages: AsyncIterator<{ subarray(): Uint8Array }>;
  #limit = 0;
  #reading = false;
  #writing: Promise<void> = Promise.resolve();
  #queuedBytes = 0;
  #dropping: Promise<void> | undefined;
  #failure: MeshnetError | undefined;

  /** In the tick in which libp2p hands the stream over, or its first bytes may be missed. */
  constructor(stream: Stream, facts: StreamFacts) {
    this.#stream = stream;
    this.remotePeer = facts.remotePeer;
    this.path = facts.path;
    this.#source = new StreamSource(stream, READ_AHEAD_BYTES);
    const messages = pipe(this.#source, (source: AsyncIterable<Chunk>) => decode(source, {
      maxDataLength: LIMITS.packetBytes,
      onLength: (length) => this.#checkLength(length),
    }));
    this.#messages = messages[Symbol.asyncIterator]();
  }

  /** Whether neither end has ended the stream. */
  get open(): boolean {
    return this.#stream.status === 'open';
  }

  /** Bytes that have arrived and wait for the reader. */
  get waitingBytes(): number {
    return this.#source.waitingBytes;
  }

  /** Calls once, when the stream is closed in both directions or reset. At once if it is already. */
  onClose(listener: () => void): void {
    if (['closed', 'aborted', 'reset'].includes(this.#stream.status)) {
      listener();
    } else {
      this.#stream.addEventListener('close', listener, { once: true });
    }
  }

  /**
   * The next message.
   *
   * @throws {MeshnetError} STREAM_ENDED when there is none, FRAME_TOO_LARGE, MALFORMED, DEADLINE_EXCEEDED, CANCELLED
   */
  async read<Desc extends DescMessage>(schema: Desc, limit: number, options: WaitOptions): Promise<MessageShape<Desc>> {
    const bytes = await this.readBytes(limit, options);
    if (bytes === undefined) {
      throw new MeshnetError('STREAM_ENDED', 'the stream ended where a message was due', {
        details: { reason: 'end', message: schema.typeName },
      });
    }
    try {
      return fromBinary(schema, bytes, { readUnknownFields: false, recursionLimit: RECURSION_LIMIT });
    } catch (cause) {
      const err = new MeshnetError('MALFORMED', `a message is no ${schema.typeName}`, {
        cause, details: { message: schema.typeName, bytes: bytes.byteLength },
      });
      this.abort(err);
      throw err;
    }
  }

  /**
   * The bytes of the next message, or nothing when the other end has closed in order.
   *
   * @throws {MeshnetError} STREAM_ENDED after a reset or inside a message, FRAME_TOO_LARGE, MALFORMED, DEADLINE_EXCEEDED,
   *   CANCELLED
   */
  async readBytes(limit: number, options: WaitOptions): Promise<Uint8Array | undefined> {
    if (this.#reading) {
      throw new MeshnetError('INTERNAL', 'two readers on one stream');
    }
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    this.#limit = limit;
    this.#reading = true;
    try {
      const next = await within(this.#messages.next(), 'reading a message', options);
      return next.done === true ? undefined : next.value.subarray();
    } catch (err) {
      const failure = readError(err);
      this.abort(failure);
      throw failure;
    } finally {
      this.#reading = false;
    }
  }

  /** As `writeBytes`, of an encoded message. */
  async write<Desc extends DescMessage>(
    schema: Desc, message: MessageInitShape<Desc>, options: WaitOptions,
  ): Promise<void> {
    await this.writeBytes(toBinary(schema, create(schema, message)), options);
  }

  /**
   * Sends one message and waits until the stream takes more, so that who awaits every write is slowed down to the speed
   * of the other end. The bytes must not change afterwards.
   *
   * @throws {MeshnetError} STREAM_ENDED, FRAME_TOO_LARGE, RESOURCE_EXHAUSTED when too much waits to be written,
   *   DEADLINE_EXCEEDED, CANCELLED
   */
  async writeBytes(bytes: Uint8Array, options: WaitOptions): Promise<void> {
    if (bytes.byteLength > LIMITS.packetBytes) {
      throw tooLarge(bytes.byteLength, LIMITS.packetBytes);
    }
    if (this.#queuedBytes > 0 && this.#queuedBytes + bytes.byteLength > WRITE_QUEUE_BYTES) {
      throw new MeshnetError('RESOURCE_EXHAUSTED', 'too much waits to be written to a stream', {
        details: { queuedBytes: this.#queuedBytes, limit: WRITE_QUEUE_BYTES },
      });
    }
    this.#queuedBytes += bytes.byteLength;
    const written = this.#writing.then(() => this.#send(bytes));
    this.#writing = written.catch(() => undefined);
    try {
      await within(written, 'writing a message', options);
    } catch (err) {
      const failure = toMeshnetError(err);
      this.abort(failure);
      throw failure;
    } finally {
      this.#queuedBytes -= bytes.byteLength;
    }
  }

  /**
   * Ends this direction when everything is written; the other one goes on.
   *
   * @throws {MeshnetError} STREAM_ENDED, DEADLINE_EXCEEDED, CANCELLED
   */
  async closeWrite(options: WaitOptions): Promise<void> {
    try {
      await within(this.#writing.then(() => this.#stream.close()), 'ending a stream', options);
    } catch (err) {
      const failure = err instanceof MeshnetError ? err : new MeshnetError('STREAM_ENDED', 'the stream broke before its end', {
        cause: err, details: { reason: 'reset' },
      });
      this.abort(failure);
      throw failure;
    }
  }

  /**
   * Ends this direction when everything is written, waits for the other end to do the same while dropping what it still
   * sends, and resets the stream when that takes too long. Never throws.
   */
  async close(options: WaitOptions): Promise<void> {
    try {
      await within(this.#closeInOrder(), 'closing a stream', options);
    } catch (err) {
      this.abort(toMeshnetError(err));
    }
  }

  /** Resets the stream at once. Waiting readers and writers get `err`. Does nothing after the end. */
  abort(err: MeshnetError = new MeshnetError('CANCELLED', 'the stream was given up')): void {
    this.#failure ??= err;
    this.#source.fail(this.#failure);
    this.#stream.abort(this.#failure);
  }

  #checkLength(length: number): void {
    if (length > this.#limit) {
      throw tooLarge(length, this.#limit);
    }
  }

  async #closeInOrder(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.onClose(resolve));
    await this.#writing;
    await this.#stream.close();
    if (!this.#reading) {
      // Two may close it at once, and the source has one reader.
      await (this.#dropping ??= this.#dropRest());
    }
    await closed;
  }

  /** What comes after our last message is of no use, but as long as it waits the other end cannot finish. */
  async #dropRest(): Promise<void> {
    const rest = this.#source[Symbol.asyncIterator]();
    while ((await rest.next()).done !== true);
  }

  async #send(bytes: Uint8Array): Promise<void> {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    try {
      this.#stream.send(encode.single(bytes, { maxDataLength: LIMITS.packetBytes }));
    } catch (cause) {
      throw new MeshnetError('STREAM_ENDED', 'the stream is closed', { cause, details: { reason: 'closed' } });
    }
    while (this.#stream.writableNeedsDrain) {
      await this.#drained();
    }
  }

  /** One drain event, and the sending that it lets happen. The stream's own `onDrain` resolves too early. */
  #drained(): Promise<void> {
    const stream = this.#stream;
    return new Promise((resolve, reject) => {
      const finish = (): void => {
        stream.removeEventListener('drain', onDrain);
        stream.removeEventListener('close', onClose);
      };
      const onDrain = (): void => {
        finish();
        resolve();
      };
      const onClose = (): void => {
        finish();
        reject(this.#failure ?? new MeshnetError('STREAM_ENDED', 'the stream was closed before all was written', {
          details: { reason: 'closed' },
        }));
      };
      stream.addEventListener('drain', onDrain);
      stream.addEventListener('close', onClose);
      if (stream.writeStatus === 'closed') {
        onClose();
      }
    });
  }
}

function tooLarge(bytes: number, limit: number): MeshnetError {
  return new MeshnetError('FRAME_TOO_LARGE', 'a message is longer than its limit', { details: { bytes, limit } });
}

/** What the decoder throws, in our words. */
function readError(err: unknown): MeshnetError {
  if (err instanceof MeshnetError) {
    return err;
  }
  switch (err instanceof Error ? err.name : '') {
    case 'UnexpectedEOFError':
      return new MeshnetError('STREAM_ENDED', 'the stream ended inside a message', {
        cause: err, details: { reason: 'truncated' },
      });
    case 'InvalidDataLengthError':
      return new MeshnetError('FRAME_TOO_LARGE', 'a message is longer than any may be', {
        cause: err, details: { limit: LIMITS.packetBytes },
      });
    default:
      return new MeshnetError('MALFORMED', 'the length of a message cannot be read', { cause: err });
  }
}
