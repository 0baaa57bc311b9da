import type { ServerResponse } from 'node:http';
import { MeshnetError } from '../errors.ts';
import { limitSending } from './send-limit.ts';

export interface EventStreamInit {
  /** Longest silence, ms. */
  pingMs: number;
  /** Longest wait for a reader that takes nothing, ms. */
  slowReaderMs: number;
}

/**
 * One `text/event-stream` answer. It keeps no more than what is being sent: `send` resolves when the reader has room again,
 * and whoever makes the events decides what happens until then.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #init: EventStreamInit;
  readonly #ping: NodeJS.Timeout;
  #cut: MeshnetError | undefined;

  /** The headers go out at once. */
  constructor(response: ServerResponse, headers: Record<string, string>, init: EventStreamInit) {
    this.#response = response;
    this.#init = init;
    response.writeHead(200, {
      ...headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    response.flushHeaders();
    this.#ping = setInterval(() => {
      // A reader that is behind is not silent.
      if (response.writableLength === 0) {
        response.write(': ping\n\n');
      }
    }, init.pingMs);
  }

  /**
   * True when it had to wait for the reader.
   *
   * @throws {MeshnetError} CANCELLED when the client has gone, READER_TOO_SLOW when it does not read, what `cut` was given
   */
  async send(data: unknown): Promise<boolean> {
    if (this.#response.destroyed || this.#response.writableEnded) {
      throw this.#gone();
    }
    this.#ping.refresh();
    if (this.#response.write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`)) {
      return false;
    }
    await this.#drained();
    return true;
  }

  /** What is still on its way has the time of a slow reader. */
  end(): void {
    clearInterval(this.#ping);
    limitSending(this.#response, this.#init.slowReaderMs);
    this.#response.end();
  }

  /** Ends the connection, so that nobody takes what has come for a whole answer. `reason` is what a waiting `send` throws. */
  cut(reason: MeshnetError): void {
    this.#cut ??= reason;
    clearInterval(this.#ping);
    this.#response.destroy();
  }

  #gone(): MeshnetError {
    return this.#cut ?? new MeshnetError('CANCELLED', 'the client has gone');
  }

  #drained(): Promise<void> {
    const response = this.#response;
    return new Promise((resolve, reject) => {
      const settle = (result: () => void): void => {
        clearTimeout(timer);
        response.off('drain', onDrain).off('close', onClose);
        result();
      };
      const onDrain = (): void => settle(resolve);
      const onClose = (): void => settle(() => reject(this.#gone()));
      const timer = setTimeout(() => this.cut(new MeshnetError('READER_TOO_SLOW', 'the client does not read', {
        details: { limitMs: this.#init.slowReaderMs },
      })), this.#init.slowReaderMs);
      response.on('drain', onDrain).on('close', onClose);
    });
  }
}
