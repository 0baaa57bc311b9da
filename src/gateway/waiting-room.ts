import { FairQueue, type Waiting } from '../domain/fair-queue.ts';
import { NO_ROOM } from '../domain/refusals.ts';
import { MeshnetError, toMeshnetError, type ErrorDetails } from '../errors.ts';
import { systemClock, type Clock } from '../net/clock.ts';
import { abortError } from '../net/wait.ts';
import type { AbortOptions } from './backend.ts';
import { WaitingLine } from './waiting-line.ts';

export interface WaitingRoomInit {
  /** Requests that are inside at once, whatever room their routes have: tried for, or with a session until their signals fire. */
  maxAnswers: number;
  /** Requests that wait at once. */
  maxQueued: number;
  /** Of one client. */
  maxQueuedPerClient: number;
  /** Longest wait, ms. */
  queueMs: number;
  /** The first pause between two tries when nothing is heard of room, ms; each later one is twice as long. */
  roomRetryMs: number;
  /** The longest such pause, ms. */
  roomRetryMaxMs: number;
  /** Requests of a line that are tried for at once, when room is plenty. */
  roomTries: number;
  /** When a client that did not get room should come back, ms. */
  comeBackMs: number;
}

/** Who wants how much of what. */
export interface Wish {
  readonly client: string;
  /** The model: who waits for another one is not in the way. */
  readonly line: string;
  readonly positions: number;
}

/** What takes room until it is closed. */
export interface Occupant {
  /** Never rejects. */
  readonly closed: Promise<void>;
}

/** One try to get room. What it gets although its signal has fired it gives back itself. */
export type Attempt<T> = (options: AbortOptions) => Promise<T>;

interface Guest extends Waiting {
  /** Resolves with the refusal when there was no room, and with nothing when the guest needs no other try. */
  try(): Promise<MeshnetError | undefined>;
}

/**
 * Where requests wait whose route has no room, or that find the gateway at its limit. The first try is made at once; who
 * then waits is tried again, in fair order, whenever a session of its line ends here, and now and then because others use
 * the same shards. A newcomer never overtakes. Who leaves, or is late, is forgotten at once.
 */
export class WaitingRoom {
  readonly #init: WaitingRoomInit;
  readonly #clock: Clock;
  readonly #queue: FairQueue<Guest>;
  /** Sessions that clients have. */
  readonly #held = new Map<string, number>();
  /** The one that was served longest ago first. */
  readonly #lines = new Map<string, WaitingLine>();
  #arrivals = 0;
  #inside = 0;

  constructor(init: WaitingRoomInit, { clock = systemClock }: { clock?: Clock } = {}) {
    this.#init = init;
    this.#clock = clock;
    this.#queue = new FairQueue({ max: init.maxQueued, maxPerClient: init.maxQueuedPerClient });
  }

  /** Requests that wait now. */
  get size(): number {
    return this.#queue.size;
  }

  /**
   * What `attempt` gives as soon as there is room.
   *
   * @throws {MeshnetError} BUSY when no more may wait; NO_CAPACITY when no room came free in time; what `attempt` threw
   *   for another reason than room; CANCELLED or the reason of the signal
   */
  async enter<T extends Occupant>(wish: Wish, attempt: Attempt<T>, options: AbortOptions): Promise<T> {
    const arrival = ++this.#arrivals;
    if (!this.#queue.has(wish.line) && this.#inside < this.#init.maxAnswers) {
      try {
        return this.#occupy(wish, await this.#comeIn(attempt, { signal: options.signal, until: options.signal }));
      } catch (err) {
        const refusal = toMeshnetError(err);
        if (options.signal.aborted || !NO_ROOM.has(refusal.code)) {
          throw err;
        }
        this.#lineOf(wish.line).refusal = refusal;
      }
    }
    return await this.#wait({ ...wish, arrival }, attempt, options);
  }

  async #wait<T extends Occupant>(wish: Wish & Waiting, attempt: Attempt<T>, options: AbortOptions): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const left = new AbortController();
    const signal = AbortSignal.any([options.signal, left.signal]);
    const tried = async (): Promise<MeshnetError | undefined> => {
      try {
        const session = await this.#comeIn(attempt, { signal, until: options.signal });
        if (this.#queue.serve(guest)) {
          resolve(this.#occupy(wish, session));
        }
      } catch (err) {
        const failure = toMeshnetError(err);
        if (!signal.aborted && NO_ROOM.has(failure.code)) {
          return failure;
        }
        this.#queue.remove(guest);
        reject(failure);
      }
      return undefined;
    };
    const over = settled(promise);
    const guest: Guest = { ...wish, try: () => Promise.race([over, tried()]) };
    this.#add(guest, wish);
    const leave = (reason: MeshnetError): void => {
      this.#queue.remove(guest);
      left.abort(reason);
      reject(reason);
      this.#lines.get(wish.line)?.wake();
    };
    const onAbort = (): void => leave(abortError(options.signal, 'waiting for room'));
    options.signal.addEventListener('abort', onAbort, { once: true });
    const stopTimer = this.#clock.after(this.#init.queueMs, () => leave(this.#tooLate(wish)));
    if (options.signal.aborted) {
      onAbort();
    }
    void this.#serve(wish.line);
    try {
      return await promise;
    } finally {
      stopTimer();
      options.signal.removeEventListener('abort', onAbort);
    }
  }

  #add(guest: Guest, wish: Wish): void {
    const full = this.#queue.add(guest);
    if (full !== undefined) {
      const who = full.scope === 'client' ? 'of this client ' : '';
      throw new MeshnetError('BUSY', `there is no room, and as many requests ${who}wait for it as may`, {
        cause: this.#lines.get(wish.line)?.refusal,
        details: { waiting: full.waiting, limit: full.limit, ...this.#facts(wish) },
      });
    }
  }

  /** Never throws. As long as nobody is refused, each round tries for twice as many; after a refusal only for the first. */
  async #serve(name: string): Promise<void> {
    const line = this.#lineOf(name);
    if (line.served) {
      return;
    }
    line.served = true;
    let width = 1;
    while (this.#queue.has(name)) {
      line.listen();
      const guests = this.#firstOf(name, Math.min(width, this.#init.maxAnswers - this.#inside));
      const outcomes = await Promise.all(guests.map((guest) => guest.try()));
      const refusal = outcomes.find((outcome) => outcome !== undefined);
      line.refusal = refusal ?? line.refusal;
      if (refusal !== undefined || guests.length === 0) {
        width = 1;
        await line.pause();
      } else {
        width = Math.min(2 * width, this.#init.roomTries);
        // Other lines hear of the next place first.
        this.#lines.delete(name);
        this.#lines.set(name, line);
      }
    }
    this.#lines.delete(name);
  }

  /** Who gets what it tried for is inside until its request is over. */
  async #comeIn<T>(attempt: Attempt<T>, { signal, until }: AbortOptions & { until: AbortSignal }): Promise<T> {
    this.#inside++;
    try {
      const session = await attempt({ signal });
      until.addEventListener('abort', () => this.#goOut(), { once: true });
      if (until.aborted) {
        this.#goOut();
      }
      return session;
    } catch (err) {
      if (NO_ROOM.has(toMeshnetError(err).code)) {
        // No news for its line, which is refused with it; other lines look again before long.
        this.#inside--;
      } else {
        this.#goOut();
      }
      throw err;
    }
  }

  #goOut(): void {
    const wasFull = this.#inside >= this.#init.maxAnswers;
    this.#inside--;
    for (const line of wasFull ? this.#lines.values() : []) {
      line.wake();
    }
  }

  /** At most `count` of those that wait there, in the order in which they should get room. */
  #firstOf(name: string, count: number): Guest[] {
    const guests: Guest[] = [];
    const held = (client: string): number =>
      (this.#held.get(client) ?? 0) + guests.filter((guest) => guest.client === client).length;
    while (guests.length < count) {
      const guest = this.#queue.next(name, held, guests);
      if (guest === undefined) {
        break;
      }
      guests.push(guest);
    }
    return guests;
  }

  #lineOf(name: string): WaitingLine {
    let line = this.#lines.get(name);
    if (line === undefined) {
      const { roomRetryMs, roomRetryMaxMs } = this.#init;
      line = new WaitingLine({ firstMs: roomRetryMs, maxMs: roomRetryMaxMs, clock: this.#clock });
      this.#lines.set(name, line);
    }
    return line;
  }

  #occupy<T extends Occupant>({ client, line }: Wish, session: T): T {
    this.#held.set(client, (this.#held.get(client) ?? 0) + 1);
    void this.#freeWhenClosed(client, line, session);
    return session;
  }

  async #freeWhenClosed(client: string, line: string, { closed }: Occupant): Promise<void> {
    await closed;
    const left = (this.#held.get(client) ?? 1) - 1;
    if (left > 0) {
      this.#held.set(client, left);
    } else {
      this.#held.delete(client);
    }
    this.#lines.get(line)?.wake();
  }

  #tooLate(wish: Wish): MeshnetError {
    const limitMs = this.#init.queueMs;
    return new MeshnetError('NO_CAPACITY', 'no room came free in time', {
      cause: this.#lines.get(wish.line)?.refusal, details: { limitMs, ...this.#facts(wish) },
    });
  }

  /** What was required, and what the stage that refused last had available. */
  #facts({ line, positions }: Wish): ErrorDetails {
    const refused = this.#lines.get(line)?.refusal;
    const details: ErrorDetails = refused?.details ?? {};
    const { availablePositions, availableSequences, faultStage } = details;
    return {
      refused: refused?.code, faultStage, requiredPositions: positions, availablePositions, requiredSequences: 1,
      availableSequences, retryAfterMs: this.#init.comeBackMs,
    };
  }
}

/** Resolves when `work` has ended, either way. */
async function settled(work: Promise<unknown>): Promise<undefined> {
  await work.catch(() => undefined);
  return undefined;
}
