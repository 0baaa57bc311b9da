export interface BackoffInit {
  /** Wait after the first failure. @default 500 ms */
  readonly baseMs?: number;
  /** Longest wait. @default 30000 ms */
  readonly capMs?: number;
  /** A life that was useful for this long forgives the failures before it. @default 60000 ms */
  readonly stableMs?: number;
  /** Failures in a row before it gives up. @default 6 */
  readonly maxFailures?: number;
  /** In [0, 1). @default Math.random */
  readonly random?: () => number;
}

/** Exponential back-off with jitter and an end. Counts; the caller waits. */
export class Backoff {
  readonly #baseMs: number;
  readonly #capMs: number;
  readonly #stableMs: number;
  readonly #maxFailures: number;
  readonly #random: () => number;
  #failures = 0;

  constructor(init: BackoffInit = {}) {
    this.#baseMs = init.baseMs ?? 500;
    this.#capMs = init.capMs ?? 30_000;
    this.#stableMs = init.stableMs ?? 60_000;
    this.#maxFailures = init.maxFailures ?? 6;
    this.#random = init.random ?? Math.random;
  }

  /** Failures in a row. */
  get failures(): number {
    return this.#failures;
  }

  /** One life ended that was useful for `usefulMs`. Gives the wait before the next one; undefined: give up. */
  failed(usefulMs: number): number | undefined {
    this.#failures = usefulMs >= this.#stableMs ? 1 : this.#failures + 1;
    if (this.#failures >= this.#maxFailures) {
      return undefined;
    }
    const full = Math.min(this.#capMs, this.#baseMs * 2 ** (this.#failures - 1));
    return full * (0.5 + this.#random() / 2);
  }
}
