import assert from 'node:assert/strict';
import { united, usable } from '../../../bench/judging/usable-records.ts';
import { aLane, aRecord } from '../runner/some-record.ts';

const lane = (sessions: number, decode: number, contended = false) =>
  aLane({ key: { model: '1b', sessions }, contended, ratios: { decode } });

describe('bench/judging/usable-records', () => {
  it('makes one record of several runs, each lane from the newest in which it was undisturbed', () => {
    const whole = aRecord({ lanes: [lane(1, 1), lane(2, 2, true), lane(4, 4), lane(8, 8, true)] });
    const part = aRecord({ at: '2026-01-03T00:00:00.000Z', commit: 'def', lanes: [lane(4, 5, true), lane(2, 3), lane(1, 1.5)] });
    const [record, ...rest] = united([whole, part]);
    assert.equal(rest.length, 0);
    assert.equal(record?.commit, 'def, abc');
    assert.deepEqual(record?.lanes.map(({ key, ratios }) => [key['sessions'], ratios['decode']]), [[1, 1.5], [2, 3], [4, 4], [8, 8]]);
    assert.deepEqual(record?.ratios, { '1b/1/decode': 1.5, '1b/2/decode': 3, '1b/4/decode': 4, '1b/8/decode': 8 });
  });

  it('lets a run that measured nothing hide no other one', () => {
    const nothing = aRecord({ at: '2026-01-03T00:00:00.000Z', lanes: [] });
    const records = usable([aRecord({ lanes: [lane(1, 1)] }), { ...nothing, context: { ...nothing.context, engine: 'none' } }]);
    assert.deepEqual(records.map(({ lanes }) => lanes.length), [1]);
  });

  it('keeps benchmarks apart, and leaves out smoke runs and other engines', () => {
    const smoke = aRecord({ bench: 'seam', lanes: [lane(1, 1)] });
    const old = aRecord({ lanes: [lane(1, 1), lane(2, 2)] });
    const now = aRecord({ lanes: [lane(1, 3)] });
    const records = united([
      { ...smoke, context: { ...smoke.context, smoke: true } },
      { ...old, context: { ...old.context, engine: 'an older engine' } },
      now, aRecord({ bench: 'gate5', lanes: [lane(1, 5)] }),
    ]);
    assert.deepEqual(records.map(({ bench, lanes }) => [bench, lanes.length]), [['split', 1], ['gate5', 1]]);
  });
});
