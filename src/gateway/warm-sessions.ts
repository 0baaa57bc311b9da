import type { MeshnetError } from '../errors.ts';
import { systemClock, type Clock } from '../net/clock.ts';
import type { OpenRoute } from '../route/opener.ts';

export interface WarmSessionsInit {
  /** Sessions at rest at once; 0 keeps none. */
  readonly sessions: number;
  /** KV cells of each stage that they hold together. */
  readonly positions: number;
  /** Longest rest of one, ms. */
  readonly restMs: number;
  /** Shortest common beginning of two requests that is worth it, tokens. */
  readonly minPrefix: number;
}

/** A route between two turns of a conversation, and what its stages hold of it. */
export interface WarmSession {
  /** Nobody else ever gets it. */
  readonly owner: string;
  /** Model digest, hexadecimal. */
  readonly model: string;
  readonly route: OpenRoute;
  /** Turns so far. */
  readonly turns: number;
  /** Ids whose state every stage holds, from position 0 on. */
  readonly held: readonly number[];
}

/** Who asks for what. */
export interface WarmWish extends Pick<WarmSession, 'owner' | 'model'> {
  /** The whole prompt. */
  readonly ids: readonly number[];
}

export interface WarmMatch {
  readonly session: WarmSession;
  /** Leading ids of the prompt that need not be sent. */
  readonly cached: number;
}

/** A prompt that begins alike by its system prompt alone does not take a long conversation's session away from it. */
const USED_SHARE = 0.5;

/**
 * Sessions at rest. Each belongs to one request at a time: it is here, or somebody has it. It goes when it has rested for too long,
 * when a newer one needs its place, and when a stage has ended it. Many conversations of one owner take each other's places first.
 */
export class WarmSessions {
  readonly #init: WarmSessionsInit;
  readonly #clock: Clock;
  /** The one used longest ago first, with what stops its timer and its listening. */
  readonly #resting = new Map<WarmSession, () => void>();
  readonly #closing = new Set<Promise<void>>();
  #stopped = false;

  constructor(init: WarmSessionsInit, { clock = systemClock }: { clock?: Clock } = {}) {
    this.#init = init;
    this.#clock = clock;
  }

  /** Sessions at rest. */
  get size(): number {
    return this.#resting.size;
  }

  /**
   * Has it from now on: lets it rest, or closes it when it is not worth its place. Resolves when every stage has been told. Never
   * throws.
   */
  async keep(session: WarmSession): Promise<void> {
    const { sessions, positions } = this.#init;
    const { route } = session;
    if (!this.#isWorthKeeping(session)) {
      await this.#close(session, route.lost.aborted ? route.lost.reason as MeshnetError : undefined);
      return;
    }
    while (this.#resting.size >= sessions || this.#positions() + route.positions > positions) {
      this.#drop(this.#firstToGo(session));
    }
    this.#hold(session);
    await route.rest();
  }

  /** The owner's session that holds most of the prompt's beginning; whoever takes it keeps or closes it. */
  take({ owner, model, ids }: WarmWish): WarmMatch | undefined {
    let best: WarmMatch | undefined;
    for (const session of this.#resting.keys()) {
      if (session.owner !== owner || session.model !== model) {
        continue;
      }
      // The last id is computed in any case: the answer's first token is drawn behind it.
      const cached = Math.min(commonLength(session.held, ids), ids.length - 1);
      const least = Math.max(this.#init.minPrefix, session.held.length * USED_SHARE);
      if (cached >= least && cached >= (best?.cached ?? 0)) {
        best = { session, cached };
      }
    }
    if (best !== undefined) {
      this.#forget(best.session);
    }
    return best;
  }

  /** Closes them all, and whatever is still to come. */
  async stop(): Promise<void> {
    this.#stopped = true;
    for (const session of this.#resting.keys()) {
      this.#drop(session);
    }
    await Promise.all(this.#closing);
  }

  #isWorthKeeping({ route, held }: WarmSession): boolean {
    const { sessions, positions, minPrefix } = this.#init;
    return !this.#stopped && sessions > 0 && route.positions <= positions && held.length >= minPrefix && !route.lost.aborted;
  }

  /** Whose place a newer one takes: of the owner that has most with it, the one used longest ago. */
  #firstToGo({ owner: newcomer }: WarmSession): WarmSession {
    const all = [...this.#resting.keys()];
    const countOf = (owner: string): number =>
      all.filter((session) => session.owner === owner).length + (owner === newcomer ? 1 : 0);
    const counted = all.map((session) => ({ session, count: countOf(session.owner) }));
    return counted.reduce((first, other) => other.count > first.count ? other : first).session;
  }

  #positions(): number {
    return [...this.#resting.keys()].reduce((sum, { route }) => sum + route.positions, 0);
  }

  #hold(session: WarmSession): void {
    const { lost } = session.route;
    const stopTimer = this.#clock.after(this.#init.restMs, () => this.#drop(session));
    const onLost = (): void => this.#drop(session, lost.reason as MeshnetError);
    lost.addEventListener('abort', onLost, { once: true });
    this.#resting.set(session, () => {
      stopTimer();
      lost.removeEventListener('abort', onLost);
    });
  }

  #forget(session: WarmSession): void {
    this.#resting.get(session)?.();
    this.#resting.delete(session);
  }

  #drop(session: WarmSession, reason?: MeshnetError): void {
    this.#forget(session);
    void this.#close(session, reason);
  }

  async #close({ route }: WarmSession, reason: MeshnetError | undefined): Promise<void> {
    const closed = route.close(reason);
    this.#closing.add(closed);
    await closed;
    this.#closing.delete(closed);
  }
}

function commonLength(a: readonly number[], b: readonly number[]): number {
  const end = Math.min(a.length, b.length);
  let length = 0;
  while (length < end && a[length] === b[length]) {
    length++;
  }
  return length;
}
