import type { Logger } from 'pino';
import { within } from '../net/wait.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';

/** What a node has started, so that it stops in reverse. */
export class StartedParts {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #parts: { readonly what: string; readonly stop: () => unknown }[] = [];

  constructor({ log }: { log: Pick<Logger, 'warn'> }) {
    this.#log = log;
  }

  add(what: string, stop: () => unknown): void {
    this.#parts.push({ what, stop });
  }

  /**
   * Stops the last one first. What does not stop in order, or not before the signal, is logged and left behind: those below
   * it are stopped all the same. Never throws.
   */
  async stop(options: AbortOptions): Promise<void> {
    for (let part = this.#parts.pop(); part !== undefined; part = this.#parts.pop()) {
      const { what, stop } = part;
      try {
        await within((async () => { await stop(); })(), `stopping: ${what}`, options);
      } catch (err) {
        this.#log.warn({ part: what, err }, 'a part did not stop in order');
      }
    }
  }
}
