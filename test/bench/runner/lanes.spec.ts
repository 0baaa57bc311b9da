import assert from 'node:assert/strict';
import { runLanes, type LanesPlan } from '../../../bench/runner/lanes.ts';
import { MeshnetError } from '../../../src/errors.ts';
import { aLane } from './some-record.ts';

type Does = 'measures' | 'fails' | 'is not allowed' | 'has nothing';

/** What each of the lanes does; `recovered` counts. */
function planned(does: readonly Does[], more: Partial<LanesPlan<Does>> = {}): LanesPlan<Does> & { recovered: number } {
  const plan: LanesPlan<Does> & { recovered: number } = {
    items: does.map((lane, i) => ({ lane, name: `${i}`, work: 1 })), smoke: false, recovered: 0,
    say: () => undefined, signal: new AbortController().signal,
    run: (lane: Does) => {
      switch (lane) {
        case 'fails': return Promise.reject(new Error('no'));
        case 'is not allowed': return Promise.reject(new MeshnetError('CONFIG_INVALID', 'not here'));
        case 'has nothing': return Promise.resolve(undefined);
        default: return Promise.resolve(aLane());
      }
    },
    recover: () => { plan.recovered++; return Promise.resolve(); },
    ...more,
  };
  return plan;
}

describe('bench/runner/lanes', () => {
  it('goes on behind a lane that fails, with systems started anew', async () => {
    const plan = planned(['measures', 'fails', 'has nothing', 'measures']);
    const { lanes, skipped } = await runLanes(plan);
    assert.equal(lanes.length, 2);
    assert.deepEqual(skipped, [{ lane: '1', why: 'INTERNAL: no' }]);
    assert.equal(plan.recovered, 1);
  });

  it('fails with the lane of a smoke run, unless the machine does not allow it', async () => {
    await assert.rejects(runLanes(planned(['measures', 'fails'], { smoke: true })), /no/);
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
