import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { GATEWAY_DEFAULTS } from '../../src/gateway/gateway-init.ts';
import { WaitingRoom, type Occupant, type WaitingRoomInit } from '../../src/gateway/waiting-room.ts';
import { ManualClock } from '../net/manual-clock.ts';

const tick = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve); });

/** A place with so many seats, whose tries are noted. */
class Place {
  seats = 1;
  taken = 0;
  readonly tries: string[] = [];
  /** Tries that run, and the most that ever did. */
  trying = 0;
  mostTrying = 0;
  /** Thrown in place of an answer. */
  fault: MeshnetError | undefined;
  /** Awaited by every try. */
  gate: Promise<unknown> = Promise.resolve();

  async take(name: string): Promise<Occupant & { leave(): void }> {
    this.tries.push(name);
    this.mostTrying = Math.max(this.mostTrying, ++this.trying);
    await this.gate;
    this.trying--;
    if (this.fault !== undefined) {
      throw this.fault;
    }
    if (this.taken >= this.seats) {
      throw new MeshnetError('NO_CAPACITY', undefined, { details: { availablePositions: 32, availableSequences: 0 } });
    }
    this.taken++;
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    const leave = (): void => {
      this.taken--;
      resolve();
    };
    return { closed, leave };
  }
}

type Seat = Awaited<ReturnType<Place['take']>>;

describe('gateway/waiting-room', () => {
  let clock: ManualClock;
  let place: Place;
  let room: WaitingRoom;
  /** Of everybody who arrived. */
  let outcomes: Map<string, Promise<void>>;
  /** Names of those that got a seat, in order. */
  let seated: string[];
  let seats: Map<string, Seat>;

  beforeEach(() => {
    clock = new ManualClock();
    place = new Place();
    outcomes = new Map();
    seated = [];
    seats = new Map();
    make();
  });

  function make(init: Partial<WaitingRoomInit> = {}): void {
    room = new WaitingRoom({ ...GATEWAY_DEFAULTS, maxQueued: 10, maxQueuedPerClient: 5, queueMs: 10_000, ...init }, { clock });
  }

  /** `a1` is the first request of the client `a`. */
  async function enter(name: string, { signal = new AbortController().signal, line = 'm' } = {}): Promise<void> {
    const seat = await room.enter({ client: name[0] as string, line, positions: 100 }, () => place.take(name), { signal });
    seated.push(name);
    seats.set(name, seat);
  }

  /** Enters one after another, and waits until all of them have had their first try. */
  async function arrive(...names: string[]): Promise<void> {
    for (const name of names) {
      const entering = enter(name);
      entering.catch(() => undefined);
      outcomes.set(name, entering);
      await tick();
    }
  }

  const outcome = (name: string): Promise<void> => outcomes.get(name) as Promise<void>;

  const leave = async (name: string): Promise<void> => {
    seats.get(name)?.leave();
    await tick();
  };

  const code = (wanted: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === wanted;

  it('lets in whoever finds room, and lets the others wait until a session ends', async () => {
    await arrive('a1', 'b1');
    assert.deepEqual(seated, ['a1']);
    assert.equal(room.size, 1);
    await leave('a1');
    assert.deepEqual(seated, ['a1', 'b1']);
    assert.equal(room.size, 0);
    await leave('b1');
    assert.deepEqual(clock.pending, [], 'nothing is left to be done');
  });

  it('lets in no more than may be inside, however much room there is, and those next that are fair', async () => {
    make({ maxAnswers: 2 });
    place.seats = 10;
    const requests = new Map(['a1', 'a2', 'a3', 'b1'].map((name) => [name, new AbortController()]));
    for (const [name, { signal }] of requests) {
      void enter(name, { signal });
      await tick();
    }
    assert.deepEqual([seated, room.size, place.tries], [['a1', 'a2'], 2, ['a1', 'a2']]);
    // Its session has ended, but not its answer.
    await leave('a1');
    assert.equal(room.size, 2);
    requests.get('a1')?.abort();
    await tick();
    assert.deepEqual([seated, room.size], [['a1', 'a2', 'b1'], 1]);
    requests.get('a2')?.abort();
    await tick();
    assert.deepEqual([seated, room.size, clock.pending], [['a1', 'a2', 'b1', 'a3'], 0, []]);
  });

  it('counts tries of all models as inside, and no refused one', async () => {
    make({ maxAnswers: 1 });
    place.seats = 0;
    await arrive('a1');
    const other = enter('b1', { line: 'n' });
    other.catch(() => undefined);
    await tick();
    assert.deepEqual(place.tries, ['a1', 'a1', 'b1', 'b1']);
    const { promise, resolve } = Promise.withResolvers<void>();
    place.gate = promise;
    place.tries.splice(0);
    clock.advance(200);
    await tick();
    assert.deepEqual(place.tries, ['a1']);
    resolve();
    await tick();
    clock.advance(10_000);
    await assert.rejects(outcome('a1'), code('NO_CAPACITY'));
    await assert.rejects(other, code('NO_CAPACITY'));
    assert.deepEqual([room.size, clock.pending], [0, []]);
  });

  it('gives places to models in turn, so that many requests for one do not keep the others out', async () => {
    make({ maxAnswers: 1 });
    place.seats = 10;
    const requests = new Map(['x1', 'a1', 'a2', 'b1', 'a3'].map((name) => [name, new AbortController()]));
    for (const [name, { signal }] of requests) {
      void enter(name, { signal, line: name === 'b1' ? 'n' : 'm' });
      await tick();
    }
    for (let i = 0; i < 5; i++) {
      const name = seated.at(-1) as string;
      await leave(name);
      requests.get(name)?.abort();
      await tick();
    }
    assert.deepEqual([seated, room.size, clock.pending], [['x1', 'a1', 'b1', 'a2', 'a3'], 0, []]);
  });

  it('gives the place of a try that failed to the next', async () => {
    make({ maxAnswers: 1 });
    const { promise, resolve } = Promise.withResolvers<void>();
    place.gate = promise;
    place.fault = new MeshnetError('NO_ROUTE');
    await arrive('a1', 'b1');
    assert.deepEqual([place.tries, room.size], [['a1'], 1]);
    resolve();
    await assert.rejects(outcome('a1'), code('NO_ROUTE'));
    await assert.rejects(outcome('b1'), code('NO_ROUTE'));
    assert.deepEqual([place.tries, clock.pending], [['a1', 'b1'], []]);
  });

  it('is fair between clients, then between their requests', async () => {
    await arrive('x1', 'a1', 'a2', 'a3', 'b1', 'c1');
    for (let i = 0; i < 5; i++) {
      await leave(seated.at(-1) as string);
    }
    assert.deepEqual(seated, ['x1', 'a1', 'b1', 'c1', 'a2', 'a3']);
  });

  it('serves those first that hold nothing', async () => {
    place.seats = 2;
    await arrive('a1', 'x1', 'a2', 'b1');
    await leave('x1');
    assert.deepEqual(seated, ['a1', 'x1', 'b1']);
    await leave('a1');
    assert.deepEqual(seated, ['a1', 'x1', 'b1', 'a2']);
  });

  it('lets no newcomer overtake, though there be room for it', async () => {
    await arrive('a1', 'b1');
    place.taken = 0;
    const before = place.tries.length;
    await arrive('c1');
    assert.deepEqual(place.tries.slice(before), []);
    clock.advance(100);
    await tick();
    assert.deepEqual(seated, ['a1', 'b1']);
    assert.equal(room.size, 1);
  });

  it('keeps models apart', async () => {
    await arrive('a1', 'b1');
    place.seats = 2;
    await enter('c1', { line: 'other' });
    assert.deepEqual(seated, ['a1', 'c1']);
  });

  it('tries now and then on its own, less and less often, because others use the same shards', async () => {
    await arrive('a1', 'b1');
    const times: number[] = [];
    for (let at = 0; at < 6000; at += 100) {
      const before = place.tries.length;
      clock.advance(100);
      await tick();
      times.push(...Array.from({ length: place.tries.length - before }, () => clock.now()));
    }
    assert.deepEqual(times, [100, 300, 700, 1500, 3100, 5100]);
    place.seats = 2;
    clock.advance(2000);
    await tick();
    assert.deepEqual(seated, ['a1', 'b1']);
  });

  it('tries soon again when a session ended and its room is not free yet', async () => {
    await arrive('a1', 'b1');
    clock.advance(5000);
    await tick();
    place.seats = 0;
    await leave('a1');
    place.seats = 1;
    clock.advance(100);
    await tick();
    assert.deepEqual(seated, ['a1', 'b1']);
  });

  it('fills plenty of room with many tries at once', async () => {
    make({ maxQueuedPerClient: 10 });
    await arrive('x1', ...Array.from({ length: 9 }, (_, i) => `a${i}`));
    place.seats = 10;
    place.gate = tick();
    clock.advance(100);
    for (let i = 0; i < 20 && seated.length < 10; i++) {
      await tick();
      place.gate = tick();
    }
    assert.deepEqual(seated, ['x1', ...Array.from({ length: 9 }, (_, i) => `a${i}`)]);
    assert.equal(place.mostTrying, 4);
  });

  it('refuses with BUSY when as many wait as may, in all and of one client, naming required and available', async () => {
    make({ maxQueued: 3, maxQueuedPerClient: 2 });
    await arrive('x1', 'a1', 'a2');
    await arrive('a3');
    await assert.rejects(outcome('a3'), (err) => {
      assert.ok(isMeshnetError(err, 'BUSY'));
      const { waiting, limit, requiredPositions, availablePositions, requiredSequences, availableSequences, retryAfterMs } = err.details;
      assert.deepEqual([waiting, limit, requiredPositions, availablePositions, requiredSequences, availableSequences, retryAfterMs],
        [2, 2, 100, 32, 1, 0, 5000]);
      return true;
    });
    await arrive('b1', 'c1');
    await assert.rejects(outcome('c1'), (err) => isMeshnetError(err, 'BUSY') && err.details['limit'] === 3);
    assert.equal(room.size, 3);
  });

  it('refuses at once when nobody may wait', async () => {
    make({ maxQueued: 0 });
    await arrive('a1', 'b1');
    await assert.rejects(outcome('b1'), code('BUSY'));
    assert.deepEqual(clock.pending, []);
  });

  it('gives up who has waited for too long, with what was missing, and frees the place', async () => {
    await arrive('a1', 'b1');
    clock.advance(9999);
    await tick();
    assert.equal(room.size, 1);
    clock.advance(1);
    assert.equal(room.size, 0);
    await assert.rejects(outcome('b1'), (err) => {
      assert.ok(isMeshnetError(err, 'NO_CAPACITY'));
      assert.deepEqual([err.details['limitMs'], err.details['refused'], err.details['availableSequences'], err.details['retryAfterMs']],
        [10_000, 'NO_CAPACITY', 0, 5000]);
      return true;
    });
    await tick();
    assert.deepEqual(clock.pending, []);
  });

  it('frees the place of a client that leaves at once, also in the middle of a try', async () => {
    const gone = new AbortController();
    await arrive('a1');
    const waiting = enter('b1', { signal: gone.signal });
    await tick();
    await arrive('c1');
    place.gate = new Promise(() => undefined);
    clock.advance(100);
    await tick();
    assert.equal(place.trying, 1);
    place.gate = Promise.resolve();
    gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
    assert.equal(room.size, 1);
    await assert.rejects(waiting, code('CANCELLED'));
    await leave('a1');
    assert.deepEqual(seated, ['a1', 'c1']);
  });

  it('tells a try whose client has gone, so that it gives back what it gets', async () => {
    await arrive('a1');
    const gone = new AbortController();
    const gate = Promise.withResolvers<void>();
    const told: AbortSignal[] = [];
    let tries = 0;
    const waiting = room.enter({ client: 'b', line: 'm', positions: 1 }, async ({ signal }) => {
      if (++tries === 1) {
        throw new MeshnetError('NO_CAPACITY');
      }
      told.push(signal);
      await gate.promise;
      return place.take('b1');
    }, { signal: gone.signal });
    await tick();
    assert.deepEqual(told.map(({ aborted }) => aborted), [false]);
    gone.abort(new MeshnetError('CANCELLED'));
    await assert.rejects(waiting, code('CANCELLED'));
    assert.ok(code('CANCELLED')(told[0]?.reason));
    gate.resolve();
    await tick();
    assert.equal(room.size, 0);
  });

  it('does not let somebody in who has left already', async () => {
    await arrive('a1', 'b1');
    await assert.rejects(enter('c1', { signal: AbortSignal.abort(new MeshnetError('DRAINING')) }), code('DRAINING'));
    assert.equal(room.size, 1);
  });

  it('passes on every other failure at once, and goes on with the next', async () => {
    await arrive('a1', 'b1', 'c1');
    place.fault = new MeshnetError('NO_ROUTE');
    clock.advance(100);
    await tick();
    await assert.rejects(outcome('b1'), code('NO_ROUTE'));
    await tick();
    await assert.rejects(outcome('c1'), code('NO_ROUTE'));
    await assert.rejects(enter('d1'), code('NO_ROUTE'));
    assert.equal(room.size, 0);
  });

  for (const refusal of ['NO_CAPACITY', 'RESOURCE_EXHAUSTED', 'RATE_EXCEEDED', 'DRAINING'] as const) {
    it(`waits after ${refusal}`, async () => {
      place.fault = new MeshnetError(refusal);
      await arrive('a1');
      assert.equal(room.size, 1);
      place.fault = undefined;
      clock.advance(100);
      await tick();
      assert.deepEqual(seated, ['a1']);
    });
  }
});
