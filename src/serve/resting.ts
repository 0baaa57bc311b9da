import type { AtRest } from '../domain/capability.ts';
import type { LeasedLane } from './lanes.ts';
import type { ShardService } from './shard-service.ts';

/** A session between two turns. */
export interface Resting {
  readonly peerId: string;
  readonly lane: Pick<LeasedLane, 'shard'>;
  /** That it has of the shard. */
  readonly positions: number;
}

/** Sessions whose room others may have, in the order in which they began to rest. */
export class RestingSessions<T extends Resting> {
  readonly #all = new Set<T>();

  get size(): number {
    return this.#all.size;
  }

  add(session: T): void {
    this.#all.delete(session);
    this.#all.add(session);
  }

  delete(session: T): void {
    this.#all.delete(session);
  }

  /**
   * Of one shard those that have rested longest, as many as have `positions` together, and one at least: every session has a
   * sequence id too. Undefined when all of them have not, so that none is ended in vain.
   */
  thatHave(positions: number, shard: ShardService): T[] | undefined {
    const found: T[] = [];
    let sum = 0;
    for (const session of this.#all) {
      if (session.lane.shard === shard) {
        found.push(session);
        sum += session.positions;
        if (sum >= positions) {
          return found;
        }
      }
    }
    return undefined;
  }

  /** Those of one shard. */
  of(shard: ShardService): AtRest {
    const own = [...this.#all].filter(({ lane }) => lane.shard === shard);
    return { sessions: own.length, positions: own.reduce((sum, { positions }) => sum + positions, 0) };
  }

  /** The one of a peer that has rested longest. */
  oldestOf(peerId: string): T | undefined {
    return [...this.#all].find((session) => session.peerId === peerId);
  }
}
