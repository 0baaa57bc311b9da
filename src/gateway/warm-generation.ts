import { CLIENTS_FAULT } from '../domain/refusals.ts';
import type { RouteSummary } from '../domain/route.ts';
import { toMeshnetError } from '../errors.ts';
import type { AbortOptions, Generation, TokenEvent } from './backend.ts';

/**
 * A turn on a session that was warm. When that session is lost, or cannot go back as far as it has to, before the first token,
 * the whole prompt is run on a new route: nobody has seen anything of the answer yet.
 */
export class WarmGeneration implements Generation {
  readonly closed: Promise<void>;
  readonly #setClosed: () => void;
  readonly #openCold: () => Promise<Generation>;
  readonly #signal: AbortSignal;
  #generation: Generation;
  #begun = false;

  constructor(warm: Generation, openCold: () => Promise<Generation>, { signal }: AbortOptions) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#setClosed = resolve;
    this.#openCold = openCold;
    this.#signal = signal;
    this.#generation = warm;
    void this.#closeWith(warm, () => !this.#begun);
  }

  get route(): RouteSummary {
    return this.#generation.route;
  }

  get cachedTokens(): number {
    return this.#generation.cachedTokens;
  }

  async * [Symbol.asyncIterator](): AsyncGenerator<TokenEvent> {
    this.#begun = true;
    let told = false;
    try {
      try {
        for await (const event of this.#generation) {
          told = true;
          yield event;
        }
        return;
      } catch (err) {
        if (told || this.#signal.aborted || CLIENTS_FAULT.has(toMeshnetError(err).code)) {
          throw err;
        }
      }
      this.#generation = await this.#openCold();
      yield * this.#generation;
    } finally {
      void this.#closeWith(this.#generation, () => true);
    }
  }

  async #closeWith({ closed }: Generation, isLast: () => boolean): Promise<void> {
    await closed;
    if (isLast()) {
      this.#setClosed();
    }
  }
}
