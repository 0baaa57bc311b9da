import type { AbortOptions } from '../worker/packet-duplex.ts';
import { CLIENTS_FAULT, NO_ROOM } from '../domain/refusals.ts';
import { candidateId, type Stage } from '../domain/route.ts';
import { isMeshnetError, MeshnetError, toMeshnetError, type ErrorCode } from '../errors.ts';
import { abortError } from '../net/wait.ts';
import type { Finder } from './finder.ts';
import type { Offer } from './offer.ts';
import type { OpenRoute, RouteOpener } from './opener.ts';
import { planRoute, uncovered, type PlannerInit } from './planner.ts';
import { StageError } from './stage-error.ts';

export interface RouterComponents {
  finder: Pick<Finder, 'find' | 'remembers' | 'evict' | 'evicted'>;
  opener: Pick<RouteOpener, 'open'>;
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

interface Wish {
  readonly nLayer: number;
  readonly positions: number;
}

/** Only busy: the next session may well find room. */
const BUSY: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['NO_CAPACITY', 'RESOURCE_EXHAUSTED', 'RATE_EXCEEDED']);

/** A connection or a worker was lost on the way, which the next moment may mend: once more, when nobody else is left. */
const BROKE_OFF: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['STREAM_ENDED', 'WORKER_LOST']);

/**
 * From a model to an open route: find, plan, open; a shard that refuses or fails is left out of the next try, and one that
 * fails is avoided by the next sessions too for a while.
 */
export class Router {
  readonly #components: RouterComponents;
  readonly #init: Required<RouterInit>;

  constructor(components: RouterComponents, init: RouterInit = {}) {
    this.#components = components;
    this.#init = { planner: {}, attempts: 3, openMs: 30_000, random: Math.random, ...init };
  }

  /**
   * @throws {MeshnetError} NO_ROUTE naming the gap; the last refusal for want of room, which is worth a wait, otherwise the
   *   last refusal; DEADLINE_EXCEEDED; CANCELLED or the reason of the signal
   */
  async open(modelDigest: Uint8Array, wish: Wish, options: AbortOptions): Promise<OpenRoute> {
    const { attempts, openMs } = this.#init;
    const timeout = AbortSignal.timeout(openMs);
    const signal = AbortSignal.any([options.signal, timeout]);
    const excluded = new Set<string>();
    const broken = new Set<string>();
    let refusal: MeshnetError | undefined;
    let noRoom: MeshnetError | undefined;
    let onlyBusy = true;
    for (let attempt = 0; attempt < attempts; attempt++) {
      try {
        const plan = await this.#plan(modelDigest, wish, { excluded, onlyBusy, signal });
        return await this.#components.opener.open(plan, wish.positions, { signal });
      } catch (err) {
        if (options.signal.aborted) {
          throw abortError(options.signal, 'opening a route');
        }
        if (timeout.aborted) {
          throw new MeshnetError('DEADLINE_EXCEEDED', `no route was open within ${openMs} ms`, {
            cause: refusal ?? err, details: { timeoutMs: openMs },
          });
        }
        if (!(err instanceof StageError)) {
          // That nobody else is left says less than why the last one refused.
          throw isMeshnetError(err, 'NO_ROUTE') ? noRoom ?? refusal ?? err : toMeshnetError(err);
        }
        refusal = err.cause;
        noRoom = NO_ROOM.has(refusal.code) ? refusal : noRoom;
        onlyBusy &&= BUSY.has(refusal.code);
        this.#leaveOut(err, { excluded, broken });
      }
    }
    throw noRoom ?? refusal ?? new MeshnetError('NO_ROUTE');
  }

  /** Whether the providers known now cover every layer. */
  async covers(modelDigest: Uint8Array, nLayer: number, options: AbortOptions): Promise<boolean> {
    const offers = await this.#components.finder.find(modelDigest, options);
    return uncovered(offers.map(({ range }) => range), nLayer).length === 0;
  }

  #leaveOut({ offer, cause }: StageError, { excluded, broken }: { excluded: Set<string>; broken: Set<string> }): void {
    if (CLIENTS_FAULT.has(cause.code)) {
      throw cause;
    }
    const id = candidateId(offer);
    if (BROKE_OFF.has(cause.code) && !broken.has(id)) {
      broken.add(id);
    } else {
      excluded.add(id);
    }
    if (!BUSY.has(cause.code)) {
      this.#components.finder.evict(offer);
    }
  }

  /**
   * NO_ROUTE is said only after a fresh look-up: the missing layers may have come meanwhile. Those that are only busy are no
   * reason for one: under load every session would ask the whole mesh.
   */
  async #plan(
    modelDigest: Uint8Array, wish: Wish,
    { excluded, onlyBusy, signal }: AbortOptions & { excluded: ReadonlySet<string>; onlyBusy: boolean },
  ): Promise<Stage<Offer>[]> {
    const { finder } = this.#components;
    const remembered = finder.remembers(modelDigest);
    if (remembered && (onlyBusy || excluded.size === 0)) {
      const candidates = await finder.find(modelDigest, { signal });
      const plan = this.#planOver(candidates, wish, new Set([...excluded, ...finder.evicted()]));
      if (plan !== undefined) {
        return plan;
      }
      if (excluded.size > 0) {
        return this.#planRoute(candidates, wish, excluded);
      }
    }
    const candidates = await finder.find(modelDigest, { signal, fresh: excluded.size > 0 || remembered });
    const avoided = new Set([...excluded, ...finder.evicted()]);
    // One that failed a moment ago, and answers, is better than none.
    return this.#planOver(candidates, wish, avoided) ?? this.#planRoute(candidates, wish, excluded);
  }

  #planOver(candidates: readonly Offer[], wish: Wish, excluded: ReadonlySet<string>): Stage<Offer>[] | undefined {
    try {
      return this.#planRoute(candidates, wish, excluded);
    } catch (err) {
      if (isMeshnetError(err, 'NO_ROUTE')) {
        return undefined;
      }
      throw err;
    }
  }

  #planRoute(candidates: readonly Offer[], wish: Wish, excluded: ReadonlySet<string>): Stage<Offer>[] {
    return planRoute({ ...wish, candidates, excluded, random: this.#init.random }, this.#init.planner);
  }
}
