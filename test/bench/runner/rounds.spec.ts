import assert from 'node:assert/strict';
import type { Probe } from '../../../bench/runner/probe.ts';
import { ratioOf, ratioOfValues, runRounds, type RoundsPlan } from '../../../bench/runner/rounds.ts';

/** Gives these times before and after each round, the last one for ever. */
class FakeProbe implements Probe {
  readonly #times: number[];
  stopped = 0;

  constructor(times: readonly number[]) {
    this.#times = [...times];
  }

  take(): Promise<number> {
    const time = this.#times.length > 1 ? this.#times.shift() : this.#times[0];
    return Promise.resolve(time ?? 100);
  }

  stop(): Promise<void> {
    this.stopped++;
    return Promise.resolve();
  }
}

type Name = 'a' | 'b' | 'c';

/** Keeps what was run, in order: `a0` is system a in round 0. */
function planned(more: Partial<RoundsPlan<Name>> = {}): RoundsPlan<Name> & { ran: string[] } {
  const ran: string[] = [];
  return {
    systems: ['a', 'b', 'c'], smoke: false, say: () => undefined, signal: new AbortController().signal,
    probe: new FakeProbe([100]), quiet: () => Promise.resolve(true), ran,
    run: (system, round) => {
      ran.push(system + round);
      return Promise.resolve({ speed: { a: 1, b: 2, c: 4 }[system] * (round + 1) });
    },
    ...more,
  };
}

describe('bench/runner/rounds', () => {
  it('runs the systems forwards in one round and backwards in the next, five times', async () => {
    const plan = planned();
    const rounds = await runRounds(plan);
    assert.deepEqual(plan.ran.join(' '), 'a0 b0 c0 c1 b1 a1 a2 b2 c2 c3 b3 a3 a4 b4 c4');
    assert.deepEqual([rounds.good.length, rounds.discarded.length, rounds.contended, rounds.long], [5, 0, false, false]);
    assert.deepEqual(rounds.good[1]?.order, ['c', 'b', 'a']);
    assert.deepEqual(rounds.good[1]?.runs.b, { speed: 4 });
  });

  it('discards a round whose probe moved, and repeats it in the same order with a number of its own', async () => {
    const plan = planned({ probe: new FakeProbe([100, 100, 100, 111, 100]), rounds: 2 });
    const rounds = await runRounds(plan);
    assert.equal(plan.ran.join(' '), 'a0 b0 c0 c1 b1 a1 c2 b2 a2');
    assert.deepEqual([rounds.good.length, rounds.discarded.length, rounds.contended], [2, 1, false]);
    assert.equal(rounds.discarded[0]?.probe, 1.11);
  });

  it('keeps a round whose probe moved by less than a tenth, in either direction', async () => {
    const rounds = await runRounds(planned({ probe: new FakeProbe([100, 109, 100, 91, 100]), rounds: 2 }));
    assert.deepEqual([rounds.good.length, rounds.discarded.length], [2, 0]);
  });

  it('takes its probe for a tenth of a round, so that a moment does not discard what took minutes', async () => {
    let now = 0;
    let takes = 0;
    const probe: Probe = { take: () => Promise.resolve([100, 85, 115, 100, 85, 115][takes++] ?? 100), stop: () => Promise.resolve() };
    const run = () => {
      now += 1000;
      return Promise.resolve({});
    };
    // Three systems of a second each: 300 ms of probe after each round and before the second one.
    const rounds = await runRounds(planned({ run, probe, rounds: 2, clock: () => now }));
    assert.deepEqual([rounds.good.length, rounds.contended, takes], [2, false, 1 + 3 + 3 + 3]);
  });

  it('counts all rounds and calls the lane contended when too many were disturbed', async () => {
    const disturbed = Array.from({ length: 10 }, (_, i) => i % 2 === 0 ? 100 : 150);
    const plan = planned({ probe: new FakeProbe([...disturbed, 100]), rounds: 3 });
    const rounds = await runRounds(plan);
    assert.deepEqual([rounds.good.length, rounds.discarded.length, rounds.contended], [3, 0, true]);
  });

  it('repeats at most as many rounds as it has, less one', async () => {
    // The first two undisturbed, then never again: 2 and 3 make 5, as many as 3 + 2.
    const times = [100, 100, 100, 100, ...Array.from({ length: 20 }, (_, i) => i % 2 === 0 ? 100 : 200)];
    const rounds = await runRounds(planned({ probe: new FakeProbe(times), rounds: 3 }));
    assert.deepEqual([rounds.good.length, rounds.contended], [5, true]);
  });

  it('calls a lane contended that began on a busy machine', async () => {
    const rounds = await runRounds(planned({ quiet: () => Promise.resolve(false) }));
    assert.deepEqual([rounds.good.length, rounds.contended], [5, true]);
  });

  it('runs one round of a smoke run, whatever the probe says, and waits for nothing', async () => {
    const plan = planned({ smoke: true, probe: new FakeProbe([1, 100]), quiet: () => assert.fail('it waited') });
    const rounds = await runRounds(plan);
    assert.deepEqual([plan.ran.length, rounds.good.length, rounds.contended], [3, 1, false]);
  });

  it('tells how many undisturbed rounds are done, and never fewer than before', async () => {
    const told: string[] = [];
    const probe = new FakeProbe([100, 100, 100, 150, 100]);
    await runRounds(planned({ probe, rounds: 2, progress: (done, of) => { told.push(`${done}/${of}`); } }));
    assert.deepEqual(told, ['1/2', '1/2', '2/2']);
  });

  it('stops its probe when a system fails or the run is given up', async () => {
    const probe = new FakeProbe([100]);
    await assert.rejects(runRounds(planned({ probe, run: () => Promise.reject(new RangeError('no')) })), RangeError);
    const stop = new AbortController();
    await assert.rejects(runRounds(planned({ probe, signal: stop.signal, run: () => {
      stop.abort(new RangeError('enough'));
      return Promise.resolve({});
    } })), /enough/);
    assert.equal(probe.stopped, 2);
  });

  it('takes a ratio within each round, and its median over them', async () => {
    const rounds = await runRounds(planned());
    const ratio = ratioOf(rounds, ({ a, c }) => Number(c['speed']) / Number(a['speed']));
    assert.deepEqual(ratio, { median: 4, low: 4, high: 4, n: 5 });
    const speed = ratioOf(rounds, ({ a }) => Number(a['speed']));
    assert.deepEqual([speed.median, speed.n], [3, 5]);
    assert.ok(speed.low >= 1 && speed.low < 3 && speed.high > 3 && speed.high <= 5);
  });

  it('keeps a median that lies just beyond a bound beyond it', () => {
    assert.equal(ratioOfValues([0.8113, 58.02 / 58.01, 1.055]).median, 1.00017);
  });

  it('makes no figure of fewer pairs than there were', () => {
    assert.throws(() => ratioOfValues([1, Number.NaN]), { code: 'INTERNAL' });
    assert.throws(() => ratioOfValues([]), { code: 'INTERNAL' });
  });
});
