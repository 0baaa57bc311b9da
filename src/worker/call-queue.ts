import PQueue from 'p-queue';
import { fromAbort } from './grpc-error.ts';
import type { AbortOptions } from './packet-duplex.ts';

/**
 * Calls to one process, so many at once. Each takes a thread there, and when none is left the process refuses; whoever waits
 * here is served.
 */
export class CallQueue {
  readonly #queue: PQueue;

  constructor(atOnce: number) {
    this.#queue = new PQueue({ concurrency: atOnce });
  }

  /** In order of arrival. REQUIRES: `work` ends by itself. @throws {MeshnetError} of `work`; of the signal, while it waits too */
  async run<T>(what: string, work: () => Promise<T>, { signal }: AbortOptions): Promise<T> {
    try {
      return await this.#queue.add(work, { signal });
    } catch (err) {
      throw signal.aborted ? fromAbort(signal, what) : err;
    }
  }
}
