import type { MeshnetError } from '../errors.ts';
import type { Clock } from '../net/clock.ts';

export interface WaitingLineInit {
  /** The first pause, ms. */
  readonly firstMs: number;
  /** The longest, ms. */
  readonly maxMs: number;
  readonly clock: Clock;
}

/** When the next try of those who wait for the same thing is due: at any news, otherwise after longer and longer pauses. */
export class WaitingLine {
  /** Why there was no room the last time. */
  refusal: MeshnetError | undefined;
  /** Somebody tries for them. */
  served = false;
  readonly #init: WaitingLineInit;
  #pauseMs: number;
  #news = false;
  #resume = (): void => undefined;

  constructor(init: WaitingLineInit) {
    this.#init = init;
    this.#pauseMs = init.firstMs;
  }

  /** From here on news counts for the pause after this try. */
  listen(): void {
    this.#news = false;
  }

  /** There may be room now, or somebody else is first. */
  wake(): void {
    this.#news = true;
    this.#pauseMs = this.#init.firstMs;
    this.#resume();
  }

  /** After a try that found no room. At once over when there was news since `listen`. */
  async pause(): Promise<void> {
    if (this.#news) {
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const stopTimer = this.#init.clock.after(this.#pauseMs, resolve);
    this.#pauseMs = Math.min(this.#pauseMs * 2, this.#init.maxMs);
    this.#resume = resolve;
    await promise;
    stopTimer();
  }
}
