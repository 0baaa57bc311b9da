import assert from 'node:assert/strict';
import { contractLanes, laneKey, type SpeedLane } from '../../../bench/gate5/lanes.ts';
import { lawMs, measuresOf, memoryBoundMiB } from '../../../bench/gate5/measures.ts';
import { ratiosOf } from '../../../bench/gate5/ratios.ts';
import { slopes } from '../../../bench/gate5/table.ts';
import type { LaneRecord } from '../../../bench/runner/lane-record.ts';
import { someRounds } from './some-rounds.ts';

const EIGHT = contractLanes().find((lane): lane is SpeedLane => lane.kind === 'decode' && lane.sessions === 8) as SpeedLane;
const ONE = contractLanes().filter((lane): lane is SpeedLane => lane.kind === 'decode' && lane.sessions === 1);
const RESULT = { prefillMs: 512, decodeWallMs: 2000, stepMs: [100, 80, 120], tokens: [], memoryMiB: [300, 310], cpuS: 1 };

describe('bench/gate5/measures', () => {
  it('counts the tokens that came within the time that they are divided by', () => {
    assert.equal(measuresOf(EIGHT, RESULT)['decode'], 8 * 23 / 2);
    // A session that was ahead of the last one's first token had some of them before.
    assert.equal(measuresOf(EIGHT, { ...RESULT, decodeTokens: 160 })['decode'], 80);
    assert.equal(measuresOf(EIGHT, RESULT)['prefill'], 500);
    assert.deepEqual(measuresOf(EIGHT, RESULT)['memory_each_mib'], [300, 310]);
  });

  it('allows a token two delays and the larger of 4 ms and 5 % above one process', () => {
    assert.equal(lawMs(30, 0), 34);
    assert.equal(lawMs(200, 0), 210);
    assert.equal(lawMs(30, 50), 136.5);
  });

  it('allows a worker its tensors with a share, its cells and a fixed rest', () => {
    assert.equal(memoryBoundMiB({ weightBytes: 100 * 2 ** 20, kvBytes: 2 ** 20 }), 116 + 96e6 / 2 ** 20);
  });

  it('holds the bytes of a token against its width', () => {
    const wire = contractLanes().find((lane): lane is SpeedLane => lane.kind === 'wire') as SpeedLane;
    const ratios = ratiosOf(wire, someRounds(wire));
    assert.equal(ratios['bytes/ours_over_bound']?.median, Number((8300 / (2048 * 4 + 128)).toPrecision(6)));
    assert.equal(ratios['wire/ours_over_rpc1l']?.median, 1);
  });

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
