import assert from 'node:assert/strict';
import { contractLanes, type SpeedLane } from '../../../bench/gate5/lanes.ts';
import { ratiosOf } from '../../../bench/gate5/ratios.ts';
import { someRounds } from './some-rounds.ts';

describe('bench/gate5/ratios', () => {
  it('holds the bytes of a token against its width', () => {
    const wire = contractLanes().find((lane): lane is SpeedLane => lane.kind === 'wire') as SpeedLane;
    const ratios = ratiosOf(wire, someRounds(wire));
    assert.equal(ratios['bytes/ours_over_bound']?.median, Number((8300 / (2048 * 4 + 128)).toPrecision(6)));
    assert.equal(ratios['wire/ours_over_rpc1l']?.median, 1);
  });
});
