import assert from 'node:assert/strict';
import { askedLanes, runLanes, type LanesPlan } from '../../../bench/runner/lanes.ts';
import { NotStoppedError } from '../../../bench/systems/stop-all.ts';
import { MeshnetError } from '../../../src/errors.ts';
import { aLane } from './some-record.ts';

type Does = 'measures' | 'fails' | 'stays' | 'fits no record' | 'is not allowed' | 'has nothing';

/** What each of the lanes does; `stops` counts. */
function planned(does: readonly Does[], more: Partial<LanesPlan<Does>> = {}): LanesPlan<Does> & { stops: number } {
  const plan: LanesPlan<Does> & { stops: number } = {
    items: does.map((lane, i) => ({ lane, name: `${i}`, work: 1 })), smoke: false, stops: 0,
    say: () => undefined, signal: new AbortController().signal,
    run: (lane: Does) => {
      switch (lane) {
        case 'fails': return Promise.reject(new Error('no'));
        case 'stays': return Promise.reject(new NotStoppedError(new Error('it stays')));
        case 'fits no record': return Promise.resolve(aLane({ budget: [{ part: 'computing', ms: Number.NaN }] }));
        case 'is not allowed': return Promise.reject(new MeshnetError('CONFIG_INVALID', 'not here'));
        case 'has nothing': return Promise.resolve(undefined);
        default: return Promise.resolve(aLane());
      }
    },
    stop: () => { plan.stops++; return Promise.resolve(); },
    ...more,
  };
  return plan;
}

describe('bench/runner/lanes', () => {
  it('takes the lanes that were asked for, and refuses when that is none', () => {
    assert.deepEqual(askedLanes('load', [1, 2, 3], (lane) => lane > 1), [2, 3]);
    assert.throws(() => askedLanes('load', [1, 2, 3], () => false), { code: 'CONFIG_INVALID', details: { field: '--lanes' } });
  });

  it('goes on behind a lane that fails, with systems started anew', async () => {
    const plan = planned(['measures', 'fails', 'has nothing', 'measures']);
    const { lanes, skipped } = await runLanes(plan);
    assert.equal(lanes.length, 2);
    assert.deepEqual(skipped, [{ lane: '1', why: 'INTERNAL: no' }]);
    // The second time at the end.
    assert.equal(plan.stops, 2);
  });

  it('loses no other lane with one that no record can hold', async () => {
    const { lanes, skipped } = await runLanes(planned(['measures', 'fits no record', 'measures']));
    assert.deepEqual([lanes.length, skipped.map(({ lane }) => lane)], [2, ['1']]);
  });

  it('keeps what was measured before something did not stop, and measures nothing beside it', async () => {
    const why = 'INTERNAL: something of an earlier lane still runs: could not be stopped: it stays';
    const within = await runLanes(planned(['measures', 'stays', 'measures']));
    assert.equal(within.lanes.length, 1);
    assert.deepEqual(within.skipped, [{ lane: '1', why: 'INTERNAL: could not be stopped: it stays' }, { lane: '2', why }]);
    const behind = await runLanes(planned(['measures', 'fails', 'measures'], { stop: () => Promise.reject(new Error('it stays')) }));
    assert.equal(behind.lanes.length, 1);
    assert.deepEqual(behind.skipped, [{ lane: '1', why: 'INTERNAL: no' }, { lane: '2', why }]);
    const last = await runLanes(planned(['measures'], { stop: () => Promise.reject(new Error('it stays')) }));
    assert.deepEqual([last.lanes.length, last.skipped], [1, []]);
  });

  it('fails with the lane of a smoke run, unless the machine does not allow it', async () => {
    const failing = planned(['measures', 'fails'], { smoke: true });
    await assert.rejects(runLanes(failing), /no/);
    assert.equal(failing.stops, 1);
    await assert.rejects(runLanes(planned(['measures'], { smoke: true, stop: () => Promise.reject(new Error('it stays')) })), NotStoppedError);
    const { lanes, skipped } = await runLanes(planned(['is not allowed', 'measures'], { smoke: true }));
    assert.deepEqual([lanes.length, skipped], [1, [{ lane: '0', why: 'CONFIG_INVALID: not here' }]]);
  });

  it('keeps what was measured before it was interrupted', async () => {
    const stop = new AbortController();
    const plan = planned(['measures', 'measures', 'measures'], {
      signal: stop.signal,
      run: () => { stop.abort(); return Promise.resolve(aLane()); },
    });
    const { lanes, skipped } = await runLanes(plan);
    assert.equal(lanes.length, 1);
    assert.deepEqual(skipped, ['1', '2'].map((lane) => ({ lane, why: 'CANCELLED: interrupted' })));
  });
});
