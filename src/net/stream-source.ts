import type { Stream, StreamCloseEvent, StreamMessageEvent } from '@libp2p/interface';
import { MeshnetError } from '../errors.ts';

export type Chunk = StreamMessageEvent['data'];

/**
 * The reading side of a libp2p stream, pulled.
 *
 * Iterating over a stream would move everything that arrives into an unbounded queue. This pauses the stream as soon as
 * `readAheadBytes` wait here; the muxer then stops granting window, so the sender stops too. What can wait for a slow
 * reader is therefore `readAheadBytes` and one stream window. Attach it in the tick in which the stream is handed over.
 */
export class StreamSource implements AsyncIterable<Chunk> {
  readonly #stream: Stream;
  readonly #readAheadBytes: number;
  #chunks: Chunk[] = [];
  #bytes = 0;
  #paused = false;
  #finSeen = false;
  #ended = false;
  #failure: MeshnetError | undefined;
  #wake: (() => void) | undefined;

  constructor(stream: Stream, readAheadBytes: number) {
    this.#stream = stream;
    this.#readAheadBytes = readAheadBytes;
    stream.addEventListener('message', this.#onMessage);
    stream.addEventListener('remoteCloseWrite', this.#onFin);
    stream.addEventListener('end', this.#onEnd);
    stream.addEventListener('close', this.#onClose);
    this.#finSeen = stream.status === 'open' && stream.remoteWriteStatus === 'closed';
    if (stream.readableEnded || stream.status !== 'open') {
      this.#onEnd();
    }
  }

  /** Bytes that have arrived and that nobody has taken, the stream's own buffer included. */
  get waitingBytes(): number {
    return this.#bytes + this.#stream.readBufferLength;
  }

  /** Drops what waits; whoever reads gets `err`. */
  fail(err: MeshnetError): void {
    this.#chunks = [];
    this.#bytes = 0;
    this.#finish(err);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Chunk> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        this.#bytes -= chunk.byteLength;
        if (this.#paused && this.#bytes < this.#readAheadBytes) {
          this.#resume();
        }
        yield chunk;
      } else if (this.#failure !== undefined) {
        throw this.#failure;
      } else if (this.#ended) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  readonly #onMessage = ({ data }: StreamMessageEvent): void => {
    if (this.#failure !== undefined) {
      return;
    }
    this.#chunks.push(data);
    this.#bytes += data.byteLength;
    if (!this.#paused && this.#bytes >= this.#readAheadBytes && this.#stream.readStatus === 'readable') {
      this.#paused = true;
      this.#stream.pause();
    }
    this.#wakeReader();
  };

  readonly #onFin = (): void => {
    this.#finSeen = true;
  };

  /** Fires for a reset and for a lost connection too; only after a FIN is it the orderly end. */
  readonly #onEnd = (): void => {
    this.#finish(this.#finSeen ? undefined : resetError());
  };

  readonly #onClose = ({ error }: StreamCloseEvent): void => {
    // A paused stream may close with bytes still in its own buffer.
    if (this.#paused) {
      this.#resume();
    }
    this.#finish(this.#finSeen && error === undefined ? undefined : resetError(error));
  };

  #resume(): void {
    this.#paused = false;
    try {
      this.#stream.resume();
    } catch {
      // The stream or its connection has closed under us; the close event says so to the reader.
    }
  }

  #finish(failure?: MeshnetError): void {
    if (this.#ended || this.#failure !== undefined) {
      return;
    }
    this.#failure = failure;
    this.#ended = true;
    this.#stream.removeEventListener('message', this.#onMessage);
    this.#stream.removeEventListener('remoteCloseWrite', this.#onFin);
    this.#stream.removeEventListener('end', this.#onEnd);
    this.#stream.removeEventListener('close', this.#onClose);
    this.#wakeReader();
  }

  #wakeReader(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}

function resetError(cause?: unknown): MeshnetError {
  return new MeshnetError('STREAM_ENDED', 'the stream was reset', { cause, details: { reason: 'reset' } });
}
