/** Length-prefixed messages on a libp2p stream. */
import type { Stream } from '@libp2p/interface';

/** Nothing here is larger than a packet of a seam. */
const MAX_MESSAGE_BYTES = 1024 * 1024;
const MAX_QUEUED_MESSAGES = 1024;

export class MessageStream {
  readonly #stream: Stream;
  readonly #queue: Uint8Array[] = [];
  #ended = false;
  #failure: Error | undefined;
  #wake: () => void = () => {};

  constructor(stream: Stream) {
    this.#stream = stream;
    void this.#pump();
  }

  async send(message: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#stream.send(Buffer.concat([varint(message.length), message]))) {
      return;
    }
    await new Promise<void>((resolve, reject) => {
      const done = (): void => {
        this.#stream.removeEventListener('drain', done);
        this.#stream.removeEventListener('close', done);
        signal.removeEventListener('abort', done);
        if (signal.aborted) {
          reject(signal.reason as Error);
        } else {
          resolve();
        }
      };
      this.#stream.addEventListener('drain', done);
      this.#stream.addEventListener('close', done);
      signal.addEventListener('abort', done);
    });
  }

  /** The next message; undefined when the other end has closed in order. */
  async receive(signal: AbortSignal): Promise<Uint8Array | undefined> {
    for (;;) {
      const message = this.#queue.shift();
      if (message !== undefined) {
        return message;
      }
      if (this.#failure !== undefined) {
        throw this.#failure;
      }
      if (this.#ended) {
        return undefined;
      }
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        const done = (): void => {
          signal.removeEventListener('abort', done);
          resolve();
        };
        this.#wake = done;
        signal.addEventListener('abort', done);
      });
    }
  }

  async close(signal: AbortSignal): Promise<void> {
    await this.#stream.close({ signal });
  }

  abort(reason: Error): void {
    this.#stream.abort(reason);
  }

  async #pump(): Promise<void> {
    let pending = Buffer.alloc(0);
    try {
      for await (const chunk of this.#stream) {
        pending = Buffer.concat([pending, chunk.subarray()]);
        for (let message = split(pending); message !== undefined; message = split(pending)) {
          this.#queue.push(message.body);
          pending = pending.subarray(message.end);
        }
        if (this.#queue.length > MAX_QUEUED_MESSAGES) {
          throw new Error('the other end sends faster than it is read');
        }
        this.#wake();
      }
      if (pending.length > 0) {
        throw new Error('the stream ended inside a message');
      }
    } catch (err) {
      this.#failure = err as Error;
      this.#stream.abort(this.#failure);
    }
    this.#ended = true;
    this.#wake();
  }
}

function varint(length: number): Buffer {
  const bytes: number[] = [];
  for (let rest = length; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) {
      return Buffer.from([...bytes, rest]);
    }
    bytes.push((rest % 128) | 128);
  }
}

/** The first message in `bytes`, when all of it has come. */
function split(bytes: Buffer): { body: Uint8Array; end: number } | undefined {
  let length = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    length += (byte & 127) * 2 ** (7 * at);
    if (length > MAX_MESSAGE_BYTES || at > 3) {
      throw new Error('a message is longer than 1 MiB');
    }
    if (byte < 128) {
      const start = at + 1;
      const end = start + length;
      return end > bytes.length ? undefined : { body: Uint8Array.from(bytes.subarray(start, end)), end };
    }
  }
  return undefined;
}
