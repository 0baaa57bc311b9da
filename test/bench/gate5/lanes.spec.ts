import assert from 'node:assert/strict';
import { THRESHOLDS } from '../../../bench/contract.ts';
import { contractLanes, laneKey, nameOf, work, type SpeedLane, type SystemName } from '../../../bench/gate5/lanes.ts';
import { ratiosOf } from '../../../bench/gate5/ratios.ts';
import type { Measures, Rounds } from '../../../bench/runner/rounds.ts';
import { someRounds } from './some-rounds.ts';

/** The figures of every lane, were it measured. */
function figures(): { key: ReturnType<typeof laneKey>; names: string[] }[] {
  return contractLanes().map((lane) => ({
    key: laneKey(lane),
    names: lane.kind === 'fit'
      ? ['fit/one_process_finished', 'fit/two_shards_finished']
      : Object.keys(ratiosOf(lane, someRounds(lane))),
  }));
}

describe('bench/gate5/lanes', () => {
  it('measures whatever the contract judges', () => {
    const bounds = THRESHOLDS.filter(({ bench }) => bench === 'gate5').flatMap(({ id, bounds = [] }) => bounds.map((bound) => ({ id, ...bound })));
    assert.ok(bounds.length > 20);
    for (const { id, lane = {}, figure } of bounds) {
      const found = figures().filter(({ key, names }) =>
        names.includes(figure) && Object.entries(lane).every(([field, value]) => key[field] === value));
      assert.ok(found.length > 0, `${id}: nobody measures ${figure} of ${JSON.stringify(lane)}`);
    }
  });

  it('gives every lane a name of its own, and work to do', () => {
    const names = contractLanes().map(nameOf);
    assert.equal(new Set(names).size, names.length);
    assert.ok(names.includes('1b/32/8/50') && names.includes('wire/1b/32/1/20') && names.includes('fit/1b'));
    assert.ok(contractLanes().every((lane) => work(lane) > 0));
  });

  it('takes the opponent at its best in each round', () => {
    const lane = contractLanes().find((one): one is SpeedLane => one.kind === 'prefill') as SpeedLane;
    const runs = (prefill: Partial<Record<SystemName, number>>): Record<SystemName, Measures> => Object.fromEntries(
      Object.entries({ local: 10, rpc2: 1, rpc1l: 1, rpc1l_ub128: 1, rpc1l_ub64: 1, ...prefill }).map(([name, value]) =>
        [name, { prefill: value, memory_over_bound: 0.5 }])) as unknown as Record<SystemName, Measures>;
    const rounds = { ...someRounds(lane), good: [runs({ ours: 20, rpc1l: 10 }), runs({ ours: 20, rpc1l_ub64: 5 }), runs({ ours: 20, rpc1l_ub128: 8 })]
      .map((one) => ({ order: [], probe: 1, pressure: { load: 0, cpuAvg10: 0 }, wallMs: 1, runs: one })) } as Rounds<SystemName>;
    assert.deepEqual(ratiosOf(lane, rounds)['prefill/ours_over_rpc1l'], { median: 2.5, low: 2, high: 4, n: 3 });
    assert.equal(ratiosOf(lane, rounds)['prefill/ours_over_local']?.median, 2);
  });
});
