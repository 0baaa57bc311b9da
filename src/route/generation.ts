import type { AbortOptions } from '../worker/packet-duplex.ts';
import type { RouteSummary } from '../domain/route.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { Finish, type Frame } from '../proto/seam_pb.js';
import type { TurnInit } from './entry-seam.ts';
import type { OpenRoute } from './opener.ts';

export type FinishName = 'end' | 'max_tokens' | 'context_full' | 'cancelled';

/** What one loop frame brought. */
export interface Step {
  readonly ids: number[];
  readonly logprobs?: { logprob: number; topIds: number[]; topLogprobs: number[] }[];
  readonly finish?: FinishName;
}

const FINISH_NAMES: Readonly<Record<number, FinishName>> = {
  [Finish.END]: 'end', [Finish.MAX_TOKENS]: 'max_tokens', [Finish.CONTEXT_FULL]: 'context_full', [Finish.CANCELLED]: 'cancelled',
};

/**
 * One turn on a route of its own, which ends with it: closed in order after the finish, released on every stage in parallel
 * when the iteration is left early, when the signal fires, or when a stage is lost. Iterated once.
 */
export class RouteGeneration implements AsyncIterable<Step> {
  readonly cachedTokens = 0;
  readonly #route: OpenRoute;
  readonly #turn: TurnInit;
  readonly #signal: AbortSignal;

  constructor(route: OpenRoute, turn: TurnInit, options: AbortOptions) {
    this.#route = route;
    this.#turn = turn;
    this.#signal = options.signal;
  }

  get route(): RouteSummary {
    return this.#route.summary;
  }

  async * [Symbol.asyncIterator](): AsyncGenerator<Step> {
    const signal = AbortSignal.any([this.#signal, this.#route.lost]);
    let reason: MeshnetError | undefined = new MeshnetError('CANCELLED');
    try {
      for await (const frame of this.#route.entry.turn(this.#turn, { signal })) {
        if (frame.finish !== Finish.UNSPECIFIED) {
          reason = undefined;
        }
        yield stepOf(frame);
      }
    } catch (err) {
      reason = this.#reason(err);
      throw reason;
    } finally {
      await this.#route.close(reason);
    }
  }

  /** The client's wish first; then the lease, which says more of a lost stage than the stream that broke with it. */
  #reason(err: unknown): MeshnetError {
    if (this.#signal.aborted) {
      return new MeshnetError('CANCELLED', undefined, { cause: err });
    }
    return this.#route.lost.aborted ? this.#route.lost.reason as MeshnetError : toMeshnetError(err);
  }
}

function stepOf(frame: Frame): Step {
  const finish = FINISH_NAMES[frame.finish];
  const logprobs = frame.logprobs.map(({ logprob, topIds, topLogprobs }) => ({ logprob, topIds, topLogprobs }));
  return {
    ids: frame.tokens,
    ...(logprobs.length > 0 ? { logprobs } : {}),
    ...(finish === undefined ? {} : { finish }),
  };
}
