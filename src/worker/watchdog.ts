import { MeshnetError } from '../errors.ts';

export interface WatchdogLimits {
  /** From the start to the first packet of either direction. @default 10000 ms */
  readonly firstByteMs?: number;
  /** Without a packet in any direction; longer than a session may stay warm between two turns. @default 1800000 ms */
  readonly idleMs?: number;
  /** For one packet to be taken by the other side. @default 30000 ms */
  readonly stallMs?: number;
}

export type Direction = 'up' | 'down';

/** The deadlines of one bridged stream. Its signal aborts with the error that says which one passed. */
export class Watchdog {
  readonly #stop = new AbortController();
  readonly #limits: Required<WatchdogLimits>;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(limits: WatchdogLimits = {}) {
    this.#limits = {
      firstByteMs: limits.firstByteMs ?? 10_000,
      idleMs: limits.idleMs ?? 1_800_000,
      stallMs: limits.stallMs ?? 30_000,
    };
    this.#arm('first-up', this.#limits.firstByteMs);
    this.#arm('first-down', this.#limits.firstByteMs);
    this.#arm('idle', this.#limits.idleMs);
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** A packet has come and is about to be handed on. */
  taken(direction: Direction): void {
    this.#disarm(`first-${direction}`);
    this.#timers.get('idle')?.refresh();
    this.#arm(`stall-${direction}`, this.#limits.stallMs);
  }

  /** The packet was handed on. */
  passed(direction: Direction): void {
    this.#disarm(`stall-${direction}`);
  }

  /** The direction has ended: nothing more is expected of it. */
  ended(direction: Direction): void {
    this.#disarm(`first-${direction}`);
    this.#disarm(`stall-${direction}`);
  }

  stop(): void {
    for (const name of this.#timers.keys()) {
      this.#disarm(name);
    }
  }

  #arm(name: string, ms: number): void {
    this.#timers.set(name, setTimeout(() => {
      this.#stop.abort(new MeshnetError('SEAM_TIMEOUT', `a bridged seam passed its ${name} limit of ${ms} ms`, {
        details: { limit: name, ms },
      }));
    }, ms));
  }

  #disarm(name: string): void {
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
  }
}
