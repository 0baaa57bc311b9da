import type { AbortOptions } from '../worker/packet-duplex.ts';
import { candidateId, type Stage } from '../domain/route.ts';
import { isMeshnetError, MeshnetError, type ErrorCode } from '../errors.ts';
import type { Finder } from './finder.ts';
import type { Offer } from './offer.ts';
import { StageError, type OpenRoute, type RouteOpener } from './opener.ts';
import { planRoute, uncovered, type PlannerInit } from './planner.ts';

export interface RouterComponents {
  finder: Finder;
  opener: RouteOpener;
}

export interface RouterInit {
  planner?: PlannerInit;
  /** Plans tried for one session. @default 3 */
  attempts?: number;
  /** From nothing to an open route. @default 30_000 ms */
  openMs?: number;
  /** In [0, 1). @default Math.random */
  random?: () => number;
}

/** The client's own fault, or its wish: another shard would answer the same. */
const FINAL: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['CANCELLED', 'CONTEXT_FULL', 'TURN_INVALID', 'GRAMMAR_INVALID', 'TOKEN_INVALID']);

/** Only busy: the next session may well find room. */
const BUSY: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['NO_CAPACITY', 'RESOURCE_EXHAUSTED', 'RATE_EXCEEDED']);

/**
 * From a model to an open route: find, plan, open; a shard that refuses or fails is left out of the next try, and one that
 * fails, of the next sessions' too for a while.
 */
export class Router {
  readonly #components: RouterComponents;
  readonly #init: Required<RouterInit>;

  constructor(components: RouterComponents, init: RouterInit = {}) {
    this.#components = components;
    this.#init = { planner: {}, attempts: 3, openMs: 30_000, random: Math.random, ...init };
  }

  /**
   * @throws {MeshnetError} NO_ROUTE naming the gap; the last stage's refusal; CANCELLED; DEADLINE_EXCEEDED
   */
  async open(modelDigest: Uint8Array, request: { nLayer: number; positions: number }, options: AbortOptions): Promise<OpenRoute> {
    const timeout = AbortSignal.timeout(this.#init.openMs);
    const signal = AbortSignal.any([options.signal, timeout]);
    const excluded = new Set<string>();
    let refusal: MeshnetError | undefined;
    for (let attempt = 0; attempt < this.#init.attempts; attempt++) {
      try {
        const plan = await this.#plan(modelDigest, request, { excluded, signal });
        return await this.#components.opener.open(plan, request.positions, { signal });
      } catch (err) {
        if (options.signal.aborted) {
          throw new MeshnetError('CANCELLED', undefined, { cause: err });
        }
        if (timeout.aborted) {
          throw new MeshnetError('DEADLINE_EXCEEDED', `no route was open within ${this.#init.openMs} ms`, {
            cause: err, details: { timeoutMs: this.#init.openMs },
          });
        }
        if (!(err instanceof StageError)) {
          throw refusal ?? err;
        }
        if (FINAL.has(err.cause.code)) {
          throw err.cause;
        }
        refusal = err.cause;
        excluded.add(candidateId(err.offer));
        if (!BUSY.has(refusal.code)) {
          this.#components.finder.evict(err.offer);
        }
      }
    }
    throw refusal ?? new MeshnetError('NO_ROUTE');
  }

  /** Whether the providers known now cover every layer. */
  async covers(modelDigest: Uint8Array, nLayer: number, options: AbortOptions): Promise<boolean> {
    const offers = await this.#components.finder.find(modelDigest, options);
    return uncovered(offers.map(({ range }) => range), nLayer).length === 0;
  }

  async #plan(
    modelDigest: Uint8Array, { nLayer, positions }: { nLayer: number; positions: number }, { excluded, signal }: { excluded: ReadonlySet<string>; signal: AbortSignal },
  ): Promise<Stage<Offer>[]> {
    const { finder } = this.#components;
    const plan = (candidates: readonly Offer[]): Stage<Offer>[] =>
      planRoute({ nLayer, positions, candidates, excluded, random: this.#init.random }, this.#init.planner);
    if (excluded.size === 0 && finder.remembers(modelDigest)) {
      try {
        return plan(await finder.find(modelDigest, { signal }));
      } catch (err) {
        if (!isMeshnetError(err, 'NO_ROUTE')) {
          throw err;
        }
        // The missing layers may have come meanwhile.
      }
    }
    return plan(await finder.find(modelDigest, { signal, fresh: true }));
  }
}
