import type { Clock } from '../../src/net/clock.ts';

interface Timer {
  atMs: number;
  task: () => void;
}

/** A clock that stands still until the test moves it. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #timers = new Set<Timer>();

  now(): number {
    return this.#nowMs;
  }

  after(ms: number, task: () => void): () => void {
    const timer = { atMs: this.#nowMs + ms, task };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Delays of the timers that are set, shortest first. */
  get pending(): number[] {
    return [...this.#timers].map(({ atMs }) => atMs - this.#nowMs).toSorted((a, b) => a - b);
  }

  /** Runs what falls due on the way, in order. */
  advance(ms: number): void {
    const until = this.#nowMs + ms;
    for (;;) {
      const next = [...this.#timers].filter(({ atMs }) => atMs <= until).toSorted((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) {
        break;
      }
      this.#timers.delete(next);
      this.#nowMs = next.atMs;
      next.task();
    }
    this.#nowMs = until;
  }
}
