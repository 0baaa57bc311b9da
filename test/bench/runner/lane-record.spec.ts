import assert from 'node:assert/strict';
import { asRecorded } from '../../../bench/runner/lane-record.ts';
import { aLane } from './some-record.ts';

describe('bench/runner/lane-record', () => {
  it('refuses a lane that no record can hold, and keeps what could not be measured as null', () => {
    assert.throws(() => asRecorded(aLane({ budget: [{ part: 'computing', ms: Number.NaN }] })));
    const round = { order: ['a'], probe: 1, pressure: { load: 0 }, wallMs: 1, runs: { a: { decode: Number.NaN } } };
    assert.deepEqual(asRecorded(aLane({ rounds: [round] })).rounds[0]?.runs['a'], { decode: null });
  });
});
