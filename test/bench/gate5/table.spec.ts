import assert from 'node:assert/strict';
import { contractLanes, laneKey, type SpeedLane } from '../../../bench/gate5/lanes.ts';
import { slopes } from '../../../bench/gate5/table.ts';
import type { LaneRecord } from '../../../bench/runner/lane-record.ts';
import { someRounds } from './some-rounds.ts';

const ONE = contractLanes().filter((lane): lane is SpeedLane => lane.kind === 'decode' && lane.sessions === 1);

describe('bench/gate5/table', () => {
  it('finds how many delays a token takes', () => {
    const lanes = ONE.map((lane): LaneRecord => {
      const rounds = someRounds(lane).good.map((round) => ({
        ...round,
        runs: Object.fromEntries(lane.systems.map((name) => [name, { step_p50_ms: 100 + (name === 'rpc2' ? 4 : 2) * lane.delay }])),
      }));
      return {
        key: laneKey(lane), systems: lane.systems, long: false, contended: false, rounds, discarded: [],
        ratios: { 'token/ours_over_law': 1 },
      };
    });
    const { ours, rpc2 } = slopes(lanes);
    assert.deepEqual([ours, rpc2], [2, 4]);
    assert.deepEqual(slopes(lanes.slice(0, 1)), {});
  });
});
