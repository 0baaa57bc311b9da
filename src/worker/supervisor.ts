import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { type MeshnetError, toMeshnetError } from '../errors.ts';
import { Backoff, type BackoffInit } from './backoff.ts';
import { Child, type ChildInit } from './child.ts';
import { exitError, isPermanent } from './exit.ts';

/** From a broken call to the exit that explains it. */
const EXIT_GRACE_MS = 500;

export interface SupervisorInit {
  readonly child: ChildInit;
  /** For messages: `worker`, `text process`. */
  readonly what: string;
  readonly backoff?: BackoffInit;
  /**
   * One life: from the spawn until the signal, which the exit of the process raises. Calls `useful` when the process
   * does its work. What it throws ends the life.
   */
  readonly live: (child: Child, useful: () => void, signal: AbortSignal) => Promise<void>;
  /** The life is over; another follows. */
  readonly onLost: (err: MeshnetError) => void;
  /** No other life follows. */
  readonly onFailed: (err: MeshnetError) => void;
}

/** Keeps one process alive: spawn, watch, back off, give up. */
export class Supervisor {
  readonly #init: SupervisorInit;
  #stop = new AbortController();
  #running: Promise<void> | undefined;

  constructor(init: SupervisorInit) {
    this.#init = init;
  }

  /** Returns at once; the callbacks tell what becomes of it. */
  start(): void {
    if (this.#running !== undefined) {
      return;
    }
    this.#stop = new AbortController();
    this.#running = this.#run(this.#stop.signal);
  }

  /** Resolves when no process is left. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#running = undefined;
  }

  async #run(stop: AbortSignal): Promise<void> {
    const backoff = new Backoff(this.#init.backoff);
    while (!stop.aborted) {
      const { err, usefulMs } = await this.#life(stop);
      if (stop.aborted) {
        return;
      }
      const waitMs = isPermanent(err) ? undefined : backoff.failed(usefulMs);
      if (waitMs === undefined) {
        this.#init.onFailed(err);
        return;
      }
      this.#init.onLost(err);
      await delay(waitMs, undefined, { signal: stop }).catch(() => undefined);
    }
  }

  async #life(stop: AbortSignal): Promise<{ err: MeshnetError; usefulMs: number }> {
    let child: Child;
    try {
      child = await Child.spawn(this.#init.child);
    } catch (err) {
      return { err: toMeshnetError(err), usefulMs: 0 };
    }
    const over = new AbortController();
    void child.exited.then(() => over.abort());
    let usefulSince: number | undefined;
    let thrown: MeshnetError | undefined;
    try {
      const useful = (): void => {
        usefulSince ??= performance.now();
      };
      await this.#init.live(child, useful, AbortSignal.any([stop, over.signal]));
    } catch (err) {
      thrown = toMeshnetError(err);
    }
    if (thrown !== undefined && isBroken(thrown) && !stop.aborted && !over.signal.aborted) {
      // A broken call is often the first sign of an exit, whose reason says more.
      await once(over.signal, 'abort', { signal: AbortSignal.timeout(EXIT_GRACE_MS) }).catch(() => undefined);
    }
    const diedByItself = over.signal.aborted;
    over.abort();
    const exit = await child.stop();
    const usefulMs = usefulSince === undefined ? 0 : performance.now() - usefulSince;
    return { err: tellingOf(thrown, diedByItself, exitError(exit, this.#init.what)), usefulMs };
  }
}

/** What the process said of itself is worth more than how it ended; a broken call is worth less. */
function tellingOf(thrown: MeshnetError | undefined, diedByItself: boolean, byExit: MeshnetError): MeshnetError {
  if (thrown === undefined || isPermanent(byExit)) {
    return thrown !== undefined && isPermanent(thrown) ? thrown : byExit;
  }
  if (!isBroken(thrown)) {
    return thrown;
  }
  return diedByItself || thrown.code === 'CANCELLED' ? byExit : thrown;
}

/** A call that ended because the process was going: it says nothing about why. */
function isBroken(err: MeshnetError): boolean {
  return err.code === 'WORKER_LOST' || err.code === 'CANCELLED';
}
