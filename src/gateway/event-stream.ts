import type { ServerResponse } from 'node:http';
import { MeshnetError } from '../errors.ts';

export interface EventStreamInit {
  /** Longest silence, ms. */
  pingMs: number;
  /** Longest wait for a reader that takes nothing, ms. */
  slowReaderMs: number;
}

/**
 * One `text/event-stream` answer. It never waits in memory: `send` resolves when the reader has room again, so that
 * whoever makes the events is held up by who reads them.
 */
export class EventStream {
  readonly #response: ServerResponse;
  readonly #init: EventStreamInit;
  readonly #ping: NodeJS.Timeout;

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

  /** Throws CANCELLED when the client has gone, DEADLINE_EXCEEDED when it does not read. */
  async send(data: unknown): Promise<void> {
    await this.#write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
  }

  end(): void {
    clearInterval(this.#ping);
    this.#response.end();
  }

  /** Ends the connection, so that nobody takes what has come for a whole answer. */
  destroy(): void {
    clearInterval(this.#ping);
    this.#response.destroy();
  }

  async #write(text: string): Promise<void> {
    if (this.#response.destroyed || this.#response.writableEnded) {
      throw new MeshnetError('CANCELLED', 'the client has gone');
    }
    this.#ping.refresh();
    if (!this.#response.write(text)) {
      await this.#drained();
    }
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
      const onClose = (): void => settle(() => reject(new MeshnetError('CANCELLED', 'the client has gone')));
      const timer = setTimeout(() => settle(() => {
        reject(new MeshnetError('DEADLINE_EXCEEDED', 'the client does not read', { details: { limitMs: this.#init.slowReaderMs } }));
      }), this.#init.slowReaderMs);
      response.on('drain', onDrain).on('close', onClose);
    });
  }
}
