import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { Finish } from '../../src/proto/seam_pb.js';
import { EntrySeam, type TurnInit } from '../../src/route/entry-seam.ts';
import { RouteGeneration } from '../../src/route/generation.ts';
import type { OpenRoute } from '../../src/route/opener.ts';
import { code, Head, LANE, loopFrame, MODEL, soon } from './rig.ts';

const TURN: TurnInit = { turn: 1, start: 0, ids: [1, 2], maxTokens: 4, logprobs: -1 };

/** A route whose head is in the test's hand, and the reasons that it was closed with. */
class TestRoute implements OpenRoute {
  readonly summary = { epoch: 1, stages: [] };
  readonly positions = 64;
  readonly leases = new AbortController();
  readonly head = new Head();
  readonly entry: EntrySeam;
  readonly closed: (MeshnetError | undefined)[] = [];
  readonly over = Promise.withResolvers<undefined>();

  constructor({ cancelMs = 50 } = {}) {
    this.entry = new EntrySeam(this.head.near, { lane: LANE, modelDigest: MODEL, positions: 64, cancelMs });
  }

  get lost(): AbortSignal {
    return this.leases.signal;
  }

  async rest(): Promise<void> {
    throw new Error('whoever keeps the route lets it rest');
  }

  async resume(): Promise<void> {
    throw new Error('a turn finds its route ready');
  }

  async close(reason?: MeshnetError): Promise<void> {
    this.closed.push(reason);
    this.over.resolve(undefined);
  }
}

describe('route/generation', () => {
  let route: TestRoute;

  beforeEach(async () => {
    route = new TestRoute();
    await Promise.all([route.entry.open(soon()), route.head.opened()]);
  });

  it('yields steps and closes in order after the finish', async () => {
    const steps = Array.fromAsync(new RouteGeneration(route, TURN, soon()));
    await route.head.turn();
    await route.head.send(loopFrame([5]));
    await route.head.send(loopFrame([6], Finish.MAX_TOKENS));
    assert.deepEqual(await steps, [{ ids: [5] }, { ids: [6], finish: 'max_tokens' }]);
    assert.deepEqual(route.closed, [undefined]);
  });

  it('passes on what a step cost at each stage', async () => {
    const steps = Array.fromAsync(new RouteGeneration(route, TURN, soon()));
    const times = [{ queueUs: 1, computeUs: 2, serializeUs: 3 }, { queueUs: 4, computeUs: 5, serializeUs: 6 }];
    await route.head.turn();
    await route.head.send({ ...loopFrame([5], Finish.END), times });
    assert.deepEqual(await steps, [{ ids: [5], finish: 'end', times }]);
  });

  it('closes in order too when the reader leaves at the finish', async () => {
    const reading = (async () => {
      for await (const step of new RouteGeneration(route, TURN, soon())) {
        if (step.finish !== undefined) {
          break;
        }
      }
    })();
    await route.head.turn();
    await route.head.send(loopFrame([6], Finish.END));
    await reading;
    assert.deepEqual(route.closed, [undefined]);
  });

  describe('with somebody who keeps its route', () => {
    const kept: (readonly number[])[] = [];
    const keeping = (turn: Partial<TurnInit> = {}, signal = soon().signal): RouteGeneration =>
      new RouteGeneration(route, { ...TURN, ...turn }, { signal, keep: async (ids) => { kept.push(ids); } });

    beforeEach(() => { kept.length = 0; });

    it('gives it away with all that the stages hold: the prompt, and its tokens but the last', async () => {
      const generation = keeping({ start: 10 });
      const steps = Array.fromAsync(generation);
      await route.head.turn();
      await route.head.send(loopFrame([5], Finish.UNSPECIFIED, 12));
      await route.head.send(loopFrame([6], Finish.UNSPECIFIED, 13));
      await route.head.send(loopFrame([7], Finish.END, 14));
      await steps;
      await generation.closed;
      assert.equal(generation.cachedTokens, 10);
      assert.deepEqual(kept, [[1, 2, 5, 6]]);
      assert.deepEqual(route.closed, []);
    });

    it('gives it away when the reader leaves at the finish', async () => {
      const reading = (async () => {
        for await (const step of keeping()) {
          if (step.finish !== undefined) {
            break;
          }
        }
      })();
      await route.head.turn();
      await route.head.send(loopFrame([6], Finish.MAX_TOKENS, 2));
      await reading;
      assert.deepEqual(kept, [[1, 2]]);
      assert.deepEqual(route.closed, []);
    });

    for (const [what, finish, pos] of [
      ['a turn that was cancelled', Finish.CANCELLED, 2], ['a finish at a position that the turn cannot have', Finish.END, 3],
    ] as const) {
      it(`closes it in order after ${what}`, async () => {
        const steps = Array.fromAsync(keeping());
        await route.head.turn();
        await route.head.send(loopFrame([6], finish, pos));
        await steps;
        assert.deepEqual(kept, []);
        assert.deepEqual(route.closed, [undefined]);
      });
    }

    it('gives it away when the signal comes between the finish and the reader, who has not come back yet', async () => {
      const client = new AbortController();
      const generation = keeping({}, client.signal);
      const steps = generation[Symbol.asyncIterator]();
      const first = steps.next();
      await route.head.turn();
      await route.head.send(loopFrame([6], Finish.MAX_TOKENS, 2));
      await first;
      client.abort(new MeshnetError('CANCELLED'));
      await steps.return(undefined);
      await generation.closed;
      assert.deepEqual(kept, [[1, 2]]);
      assert.deepEqual(route.closed, []);
    });

    it('closes it when a stage is lost between the finish and the reader', async () => {
      const generation = keeping();
      const steps = generation[Symbol.asyncIterator]();
      const first = steps.next();
      await route.head.turn();
      await route.head.send(loopFrame([6], Finish.MAX_TOKENS, 2));
      await first;
      route.leases.abort(new MeshnetError('LEASE_EXPIRED'));
      await generation.closed;
      assert.deepEqual(kept, []);
      assert.equal(route.closed[0]?.code, 'LEASE_EXPIRED');
    });

    it('releases it when the reader leaves early', async () => {
      const reading = (async () => {
        for await (const step of keeping()) {
          assert.deepEqual(step.ids, [5]);
          break;
        }
      })();
      await route.head.turn();
      await route.head.send(loopFrame([5], Finish.UNSPECIFIED, 2));
      await reading;
      assert.equal(route.closed[0]?.code, 'CANCELLED');
      assert.deepEqual(kept, []);
    });
  });

  it('runs turn after turn on one route', async () => {
    for (const turn of [1, 2, 3]) {
      const steps = Array.fromAsync(new RouteGeneration(route, { ...TURN, turn }, { ...soon(), keep: async () => undefined }));
      assert.equal((await route.head.turn()).turn.turn?.turn, turn);
      await route.head.send(loopFrame([turn], Finish.END, 2));
      assert.deepEqual(await steps, [{ ids: [turn], finish: 'end' }]);
    }
    assert.deepEqual(route.closed, []);
  });

  it('cancels the turn, then releases, when the reader leaves early', async () => {
    const reading = (async () => {
      for await (const step of new RouteGeneration(route, TURN, soon())) {
        assert.deepEqual(step.ids, [5]);
        break;
      }
    })();
    await route.head.turn();
    await route.head.send(loopFrame([5]));
    assert.equal((await route.head.next())?.cancel?.turn, 1);
    await reading;
    assert.equal(route.closed[0]?.code, 'CANCELLED');
  });

  it('tells when the session is over at every stage, however it ended', async () => {
    const generation = new RouteGeneration(route, TURN, soon());
    const steps = Array.fromAsync(generation);
    await route.head.turn();
    await route.head.send(loopFrame([6], Finish.END));
    await steps;
    await generation.closed;
    assert.deepEqual(route.closed, [undefined]);

    const unread = new TestRoute();
    await new RouteGeneration(unread, TURN, { ...soon(), readMs: 10 }).closed;
    assert.equal(unread.closed[0]?.code, 'DEADLINE_EXCEEDED');
  });

  it('releases at once, though the head takes no cancel', async () => {
    const stuck = new TestRoute({ cancelMs: 60_000 });
    await Promise.all([stuck.entry.open(soon()), stuck.head.opened()]);
    const gone = new AbortController();
    const steps = Array.fromAsync(new RouteGeneration(stuck, TURN, { signal: gone.signal }));
    steps.catch(() => undefined);
    await stuck.head.turn();
    const taken = Promise.withResolvers<void>();
    stuck.head.near.write = () => taken.promise;
    gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
    await stuck.over.promise;
    assert.equal(stuck.closed[0]?.code, 'CANCELLED');
    taken.resolve();
    await assert.rejects(steps, code('CANCELLED'));
  });

  it('ends with the reason of the signal, which is what the client is told', async () => {
    const gone = new AbortController();
    const steps = Array.fromAsync(new RouteGeneration(route, TURN, { signal: gone.signal }));
    steps.catch(() => undefined);
    await route.head.turn();
    gone.abort(new MeshnetError('DRAINING', 'the node is stopping'));
    await assert.rejects(steps, code('DRAINING'));
    assert.equal(route.closed[0]?.code, 'DRAINING');
  });

  it('says why a stage was lost rather than that a stream broke', async () => {
    const steps = Array.fromAsync(new RouteGeneration(route, TURN, soon()));
    steps.catch(() => undefined);
    await route.head.turn();
    route.leases.abort(new MeshnetError('WORKER_LOST', 'the worker of this stage was lost', { details: { faultStage: 1 } }));
    await route.head.vanish();
    await assert.rejects(steps, code('WORKER_LOST'));
    assert.equal(route.closed[0]?.code, 'WORKER_LOST');
  });

  it('gives a route back that nobody reads', async () => {
    const generation = new RouteGeneration(route, TURN, { ...soon(), readMs: 10 });
    await route.over.promise;
    assert.equal(route.closed[0]?.code, 'DEADLINE_EXCEEDED');
    await assert.rejects(Array.fromAsync(generation), code('DEADLINE_EXCEEDED'));
  });

  it('gives a route back when the signal fires before anybody reads', async () => {
    const gone = new AbortController();
    const generation = new RouteGeneration(route, TURN, { signal: gone.signal });
    gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
    await route.over.promise;
    await assert.rejects(Array.fromAsync(generation), code('CANCELLED'));
    assert.equal(route.closed.length, 1);
  });

  it('gives a route back when a stage is lost before anybody reads, or the signal has fired already', async () => {
    const generation = new RouteGeneration(route, TURN, soon());
    route.leases.abort(new MeshnetError('LEASE_EXPIRED'));
    await route.over.promise;
    await assert.rejects(Array.fromAsync(generation), code('LEASE_EXPIRED'));

    const late = new TestRoute();
    await assert.rejects(Array.fromAsync(new RouteGeneration(late, TURN, { signal: AbortSignal.abort() })), code('CANCELLED'));
    assert.equal(late.closed.length, 1);
  });

  it('is read once', async () => {
    const generation = new RouteGeneration(route, TURN, soon());
    const steps = Array.fromAsync(generation);
    await route.head.turn();
    await route.head.send(loopFrame([6], Finish.END));
    await steps;
    await assert.rejects(Array.fromAsync(generation), code('ALREADY_STOPPED'));
  });
});
