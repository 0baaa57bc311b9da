import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { WarmSessions, type WarmSession, type WarmSessionsInit } from '../../src/gateway/warm-sessions.ts';
import type { OpenRoute } from '../../src/route/opener.ts';
import { ManualClock } from '../net/manual-clock.ts';

const [ALICE, BOB] = ['key a', 'key b'];
const LIMITS: WarmSessionsInit = { sessions: 3, positions: 1000, restMs: 60_000, minPrefix: 4 };

/** A route that notes what happens to it. */
class TestRoute implements OpenRoute {
  readonly summary = { epoch: 1, stages: [] };
  readonly entry = { turn: () => assert.fail('no turn runs here') };
  readonly leases = new AbortController();
  readonly lost = this.leases.signal;
  readonly positions: number;
  readonly log: string[] = [];

  constructor(positions = 100) {
    this.positions = positions;
  }

  async rest(): Promise<void> {
    this.log.push('rest');
  }

  async resume(): Promise<void> {
    this.log.push('resume');
  }

  async close(reason?: MeshnetError): Promise<void> {
    this.log.push(`close ${reason?.code ?? 'in order'}`);
  }
}

interface TestSession extends WarmSession {
  readonly route: TestRoute;
}

function session(held: readonly number[], { owner = ALICE, model = 'm', positions = 100 } = {}): TestSession {
  return { owner, model, held, turns: 1, route: new TestRoute(positions) };
}

/** Ids from `first` on. */
const run = (first: number, length: number): number[] => Array.from({ length }, (_, i) => first + i);

describe('gateway/warm-sessions', () => {
  let clock: ManualClock;

  beforeEach(() => {
    clock = new ManualClock();
  });

  const pool = (init: Partial<WarmSessionsInit> = {}): WarmSessions => new WarmSessions({ ...LIMITS, ...init }, { clock });
  const wish = (ids: readonly number[], owner = ALICE, model = 'm') => ({ owner, model, ids });

  it('lets a session rest and gives it, once, to the request that goes on with it', async () => {
    const warm = pool();
    const one = session(run(1, 10));
    await warm.keep(one);
    assert.deepEqual([warm.size, one.route.log], [1, ['rest']]);
    assert.deepEqual(warm.take(wish(run(1, 12))), { session: one, cached: 10 });
    assert.equal(warm.take(wish(run(1, 12))), undefined);
    assert.deepEqual([warm.size, one.route.log, clock.pending], [0, ['rest'], []]);
  });

  it('gives nothing to another owner or for another model', async () => {
    const warm = pool();
    await warm.keep(session(run(1, 10)));
    assert.equal(warm.take(wish(run(1, 12), BOB)), undefined);
    assert.equal(warm.take(wish(run(1, 12), ALICE, 'other')), undefined);
    assert.equal(warm.size, 1);
  });

  it('says how far a prompt goes with what is held, and leaves its last id to be computed', async () => {
    const warm = pool();
    const one = session(run(1, 10));
    for (const [ids, cached] of [
      [[...run(1, 7), 99, 98], 7], [run(1, 10), 9], [run(1, 8), 7], [run(1, 50), 10],
    ] as const) {
      await warm.keep(one);
      assert.equal(warm.take(wish(ids))?.cached, cached);
    }
  });

  it('gives the session that holds most of the prompt, of equal ones that used last', async () => {
    const warm = pool();
    const [short, long, later] = [session(run(1, 6)), session(run(1, 8)), session(run(1, 8))];
    for (const one of [long, later, short]) {
      await warm.keep(one);
    }
    assert.equal(warm.take(wish(run(1, 20)))?.session, later);
    assert.equal(warm.take(wish(run(1, 20)))?.session, long);
    assert.equal(warm.take(wish(run(1, 20)))?.session, short);
  });

  it('does not give a session for a beginning that is too short, or less than half of it', async () => {
    const warm = pool();
    const [one, long] = [session(run(1, 6)), session([...run(1, 9), ...run(50, 10)])];
    await warm.keep(one);
    assert.equal(warm.take(wish([...run(1, 3), 99, 98])), undefined);
    assert.equal(warm.take(wish([])), undefined);
    assert.equal(warm.take(wish(run(1, 4))), undefined, 'its last id does not count');
    assert.equal(warm.take(wish(run(1, 5)))?.session, one);
    await warm.keep(long);
    assert.equal(warm.take(wish([...run(1, 9), 99])), undefined);
    assert.equal(warm.take(wish([...run(1, 9), 50, 99]))?.cached, 10);
  });

  it('closes a session that has rested for too long, and not one that was used meanwhile', async () => {
    const warm = pool();
    const [idle, used] = [session(run(1, 10)), session(run(101, 10))];
    await warm.keep(idle);
    await warm.keep(used);
    clock.advance(30_000);
    await warm.keep(warm.take(wish(run(101, 12)))?.session ?? assert.fail());
    clock.advance(30_000);
    assert.deepEqual([idle.route.log, used.route.log], [['rest', 'close in order'], ['rest', 'rest']]);
    clock.advance(30_000);
    assert.deepEqual([used.route.log.at(-1), warm.size], ['close in order', 0]);
  });

  it('takes the place of a newer one from the owner that has most, so that many conversations of one leave others theirs', async () => {
    const warm = pool({ sessions: 3 });
    const bobs = session(run(901, 10), { owner: BOB });
    await warm.keep(bobs);
    const alices = [1, 101, 201, 301].map((first) => session(run(first, 10)));
    for (const one of alices) {
      await warm.keep(one);
    }
    assert.deepEqual(alices.map(({ route }) => route.log.at(-1)), ['close in order', 'close in order', 'rest', 'rest']);
    assert.deepEqual(bobs.route.log, ['rest']);
    // Now they have two each for three places.
    const second = session(run(801, 10), { owner: BOB });
    await warm.keep(second);
    assert.deepEqual([bobs, ...alices.slice(2), second].map(({ route }) => route.log.at(-1)), ['close in order', 'rest', 'rest', 'rest']);
  });

  it('closes the one used longest ago for a newer one, when there are too many', async () => {
    const warm = pool({ sessions: 2 });
    const [first, second, third] = [session(run(1, 10)), session(run(101, 10)), session(run(201, 10), { owner: BOB })];
    await warm.keep(first);
    await warm.keep(second);
    await warm.keep(warm.take(wish(run(1, 12)))?.session ?? assert.fail());
    await warm.keep(third);
    assert.deepEqual([first, second, third].map(({ route }) => route.log.at(-1)), ['rest', 'close in order', 'rest']);
    assert.equal(warm.size, 2);
  });

  it('closes as many as hold the positions that a newer one needs', async () => {
    const warm = pool();
    const [first, second, third] = [session(run(1, 10), { positions: 400 }), session(run(101, 10)), session(run(201, 10), { positions: 900 })];
    for (const one of [first, second, third]) {
      await warm.keep(one);
    }
    assert.deepEqual([first, second, third].map(({ route }) => route.log.at(-1)), ['close in order', 'rest', 'rest']);
  });

  for (const [what, one, init] of [
    ['when none may rest', session(run(1, 10)), { sessions: 0 }],
    ['that holds more positions than all may', session(run(1, 10), { positions: 1001 }), {}],
    ['that holds too little to be worth it', session(run(1, 3)), {}],
  ] as const) {
    it(`closes a session in order at once ${what}`, async () => {
      const warm = pool(init);
      await warm.keep(one);
      assert.deepEqual([one.route.log, warm.size, clock.pending], [['close in order'], 0, []]);
    });
  }

  it('closes a session that a stage has ended, with its reason, while it rests and before', async () => {
    const warm = pool();
    const [resting, ended] = [session(run(1, 10)), session(run(1, 10))];
    await warm.keep(resting);
    resting.route.leases.abort(new MeshnetError('LEASE_EXPIRED'));
    assert.deepEqual([resting.route.log, warm.size, clock.pending], [['rest', 'close LEASE_EXPIRED'], 0, []]);
    ended.route.leases.abort(new MeshnetError('WORKER_LOST'));
    await warm.keep(ended);
    assert.deepEqual([ended.route.log, warm.size], [['close WORKER_LOST'], 0]);
  });

  it('leaves a session alone that somebody has', async () => {
    const warm = pool();
    const one = session(run(1, 10));
    await warm.keep(one);
    warm.take(wish(run(1, 12)));
    one.route.leases.abort(new MeshnetError('WORKER_LOST'));
    clock.advance(120_000);
    await warm.stop();
    assert.deepEqual(one.route.log, ['rest']);
  });

  it('closes all when it stops, and whatever comes later', async () => {
    const warm = pool();
    const [one, other, late] = [session(run(1, 10)), session(run(101, 10)), session(run(201, 10))];
    await warm.keep(one);
    await warm.keep(other);
    const { promise: told, resolve: tell } = Promise.withResolvers<void>();
    other.route.close = async () => { await told; };
    const stopping = warm.stop();
    const before = await Promise.race([stopping.then(() => 'stopped'), new Promise((resolve) => { setImmediate(resolve, 'stops'); })]);
    assert.deepEqual([one.route.log.at(-1), before], ['close in order', 'stops']);
    tell();
    await stopping;
    await warm.keep(late);
    assert.deepEqual([late.route.log, warm.size], [['close in order'], 0]);
  });
});
