import type { AbortOptions } from '../worker/packet-duplex.ts';
import type { RouteSummary } from '../domain/route.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { abortError } from '../net/wait.ts';
import { Finish, type Frame } from '../proto/seam_pb.js';
import type { TurnInit } from './entry-seam.ts';
import { stepOf, type Step } from './loop-frame.ts';
import type { OpenRoute } from './opener.ts';

export interface RouteGenerationInit {
  /** From the open route to the first read. @default 10_000 ms */
  readonly readMs?: number;
  /**
   * Takes the route over when the turn has finished and left it whole. `ids`: what every stage holds from the turn's start
   * on, which is all but the token drawn last. Never throws. Without it the route is closed.
   */
  readonly keep?: (ids: readonly number[]) => Promise<void>;
}

/**
 * One turn on a route of its own, which ends with it: kept, or closed in order after the finish, released on every stage in
 * parallel when the iteration is left early, when the signal fires, or when a stage is lost. Iterated once, and soon: a
 * route that nobody reads is given back.
 */
export class RouteGeneration implements AsyncIterable<Step> {
  /** Positions before the turn's own, whose state every stage held already. */
  readonly cachedTokens: number;
  /** Settles when every stage has been told that the answer is over. Never rejects. */
  readonly closed: Promise<void>;
  readonly #setClosed: () => void;
  readonly #route: OpenRoute;
  readonly #turn: TurnInit;
  readonly #signal: AbortSignal;
  readonly #keep: RouteGenerationInit['keep'];
  readonly #unread: NodeJS.Timeout;
  /** Set by the first read, or by what came before one. */
  #begun = false;
  #over: MeshnetError | undefined;
  #closing: Promise<void> | undefined;
  /** What every stage holds of the turn; nothing when they do not agree, or it has not finished. */
  #held: readonly number[] | undefined;

  constructor(route: OpenRoute, turn: TurnInit, options: AbortOptions & RouteGenerationInit) {
    const { signal, readMs = 10_000, keep } = options;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#setClosed = resolve;
    this.#route = route;
    this.#turn = turn;
    this.#signal = signal;
    this.#keep = keep;
    this.cachedTokens = turn.start ?? 0;
    this.#unread = setTimeout(() => {
      this.#giveBack(new MeshnetError('DEADLINE_EXCEEDED', `nobody read the answer within ${readMs} ms`, {
        details: { timeoutMs: readMs },
      }));
    }, readMs);
    this.#unread.unref();
    for (const end of [signal, route.lost]) {
      end.addEventListener('abort', this.#onEnd, { once: true });
    }
    if (signal.aborted || route.lost.aborted) {
      this.#onEnd();
    }
  }

  get route(): RouteSummary {
    return this.#route.summary;
  }

  async * [Symbol.asyncIterator](): AsyncGenerator<Step> {
    if (this.#begun) {
      throw this.#over ?? new MeshnetError('ALREADY_STOPPED', 'an answer is read once');
    }
    this.#begin();
    const signal = AbortSignal.any([this.#signal, this.#route.lost]);
    const left = new MeshnetError('CANCELLED', 'the answer was left');
    let reason: MeshnetError | undefined = left;
    // Every stage hears of it at once, whatever becomes of the cancel at the head. What has finished is not cancelled any more: the
    // signal may well come before the reader asks for what follows the last token.
    const release = (): void => {
      const isWhole = reason === undefined && !this.#route.lost.aborted;
      void this.#close(isWhole ? undefined : this.#reason(left));
    };
    signal.addEventListener('abort', release, { once: true });
    const drawn: number[] = [];
    try {
      for await (const frame of this.#route.entry.turn(this.#turn, { signal })) {
        drawn.push(...frame.tokens);
        reason = frame.finish === Finish.UNSPECIFIED ? left : undefined;
        this.#held = this.#heldAfter(frame, drawn);
        let taken = false;
        try {
          yield stepOf(frame);
          taken = true;
        } finally {
          if (!taken && reason !== undefined) {
            release();
          }
        }
      }
    } catch (err) {
      reason = this.#reason(err);
      throw reason;
    } finally {
      signal.removeEventListener('abort', release);
      await this.#close(reason);
    }
  }

  readonly #onEnd = (): void => {
    this.#giveBack(this.#reason(new MeshnetError('CANCELLED')));
  };

  #begin(): void {
    this.#begun = true;
    clearTimeout(this.#unread);
    for (const end of [this.#signal, this.#route.lost]) {
      end.removeEventListener('abort', this.#onEnd);
    }
  }

  #giveBack(reason: MeshnetError): void {
    this.#begin();
    this.#over = reason;
    void this.#close(reason);
  }

  /** The first reason counts. */
  #close(reason: MeshnetError | undefined): Promise<void> {
    return this.#closing ??= this.#closeRoute(reason);
  }

  async #closeRoute(reason: MeshnetError | undefined): Promise<void> {
    if (reason === undefined && this.#held !== undefined && this.#keep !== undefined) {
      await this.#keep(this.#held);
    } else {
      await this.#route.close(reason);
    }
    this.#setClosed();
  }

  /** The finish names the position after the last one that was run: a head that counts otherwise is not gone on with. */
  #heldAfter({ finish, pos }: Frame, drawn: readonly number[]): readonly number[] | undefined {
    if (finish === Finish.UNSPECIFIED || finish === Finish.CANCELLED) {
      return undefined;
    }
    const held = [...this.#turn.ids, ...drawn.slice(0, -1)];
    return pos === this.cachedTokens + held.length ? held : undefined;
  }

  /** The client's wish first; then the lease, which says more of a lost stage than the stream that broke with it. */
  #reason(err: unknown): MeshnetError {
    if (this.#signal.aborted) {
      return abortError(this.#signal, 'the answer');
    }
    return this.#route.lost.aborted ? this.#route.lost.reason as MeshnetError : toMeshnetError(err);
  }
}
