/** One who waits. */
export interface Waiting {
  readonly client: string;
  /** What it waits for: those of other lines are not in its way. */
  readonly line: string;
  /** Grows from one to the next. */
  readonly arrival: number;
}

export interface FairQueueLimits {
  /** Of all clients and lines. */
  readonly max: number;
  /** Of one client. */
  readonly maxPerClient: number;
}

/** A limit that is reached. */
export interface Full {
  readonly scope: 'all' | 'client';
  readonly waiting: number;
  readonly limit: number;
}

interface Client<T> {
  /** Its place in the round: the lowest comes next. */
  turn: number;
  /** By arrival. */
  readonly waiting: T[];
}

/**
 * Who is next. Between clients: the one that holds least, then the one whose turn is the longest ago; a client that joins
 * does so at the end of the round, however often it comes. Between the requests of one client: by arrival.
 */
export class FairQueue<T extends Waiting> {
  readonly #limits: FairQueueLimits;
  readonly #clients = new Map<string, Client<T>>();
  #size = 0;
  #turns = 0;

  constructor(limits: FairQueueLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether anybody waits in that line. */
  has(line: string): boolean {
    return [...this.#clients.values()].some(({ waiting }) => waiting.some((item) => item.line === line));
  }

  /** Undefined: it waits from now on. Otherwise the limit that forbids it, and nothing has changed. */
  add(item: T): Full | undefined {
    const { max, maxPerClient } = this.#limits;
    const client = this.#clients.get(item.client);
    const own = client?.waiting.length ?? 0;
    if (own >= maxPerClient) {
      return { scope: 'client', waiting: own, limit: maxPerClient };
    }
    if (this.#size >= max) {
      return { scope: 'all', waiting: this.#size, limit: max };
    }
    this.#size += 1;
    if (client === undefined) {
      this.#clients.set(item.client, { turn: ++this.#turns, waiting: [item] });
    } else {
      const later = client.waiting.findIndex(({ arrival }) => arrival > item.arrival);
      client.waiting.splice(later < 0 ? own : later, 0, item);
    }
    return undefined;
  }

  /** Whose turn it is in that line, those of `without` left out; it stays. `held`: what a client has got already. */
  next(line: string, held: (client: string) => number, without: readonly T[] = []): T | undefined {
    let best: { item: T; load: number; turn: number } | undefined;
    for (const [client, { turn, waiting }] of this.#clients) {
      const item = waiting.find((one) => one.line === line && !without.includes(one));
      if (item === undefined) {
        continue;
      }
      const load = held(client);
      if (best === undefined || load < best.load || (load === best.load && turn < best.turn)) {
        best = { item, load, turn };
      }
    }
    return best?.item;
  }

  /** It got what it waited for: its client goes to the end of the round. False when it does not wait any more. */
  serve(item: T): boolean {
    const waited = this.remove(item);
    const client = this.#clients.get(item.client);
    if (waited && client !== undefined) {
      client.turn = ++this.#turns;
    }
    return waited;
  }

  /** It leaves, and takes nobody's turn. False when it does not wait any more. */
  remove(item: T): boolean {
    const client = this.#clients.get(item.client);
    const at = client?.waiting.indexOf(item) ?? -1;
    if (client === undefined || at < 0) {
      return false;
    }
    client.waiting.splice(at, 1);
    this.#size -= 1;
    if (client.waiting.length === 0) {
      this.#clients.delete(item.client);
    }
    return true;
  }
}
