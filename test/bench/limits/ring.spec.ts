import assert from 'node:assert/strict';
import { ringLimit, ringOf } from '../../../bench/limits/ring.ts';

/** Steps of one process with 1 to 32 sessions: four rows cost hardly more than one. */
const STEP_MS = new Map([[1, 30], [2, 45], [4, 60], [8, 100], [16, 190], [32, 380]]);
const of = (sessions: number, delayMs: number) => ringLimit({ sessions, stages: 2, delayMs, stepMs: STEP_MS });

describe('bench/limits/ring', () => {
  it('gives one session the time of one process and a delay for each stage', () => {
    assert.deepEqual(of(1, 0), { group: 1, tokenMs: 30, tokS: 1 / 30 * 1000 });
    assert.equal(of(1, 20)?.tokenMs, 70);
  });

  it('has a group for every stage where nothing is far', () => {
    // Two groups of four: each stage always has one of them.
    assert.deepEqual(of(8, 0), { group: 4, tokenMs: 60, tokS: 8 / 60 * 1000 });
  });

  it('takes smaller groups where the way is longer than the work, and larger ones for more sessions', () => {
    assert.deepEqual([[8, 20], [8, 50]].map(([n = 0, delay = 0]) => [of(n, delay)?.group, of(n, delay)?.tokenMs]), [[2, 90], [1, 130]]);
    assert.deepEqual(of(32, 50), { group: 8, tokenMs: 200, tokS: 160 });
  });

  it('never gives more than what a stage can do with the best group', () => {
    const most = Math.max(...[...STEP_MS].map(([group, ms]) => group / (ms / 2) * 1000));
    for (const sessions of STEP_MS.keys()) {
      for (const delay of [0, 5, 20, 50]) {
        assert.ok((of(sessions, delay)?.tokS ?? Infinity) <= most, `${sessions} sessions, ${delay} ms`);
      }
    }
  });

  it('is read back from the limits of a lane', () => {
    assert.deepEqual(ringOf({ one8: {}, ring: of(8, 20) }), of(8, 20));
    assert.equal(ringOf({ one8: {} }), undefined);
    assert.equal(ringOf(undefined), undefined);
  });

  it('says nothing without a step of a group that fits', () => {
    assert.equal(ringLimit({ sessions: 3, stages: 2, delayMs: 0, stepMs: new Map([[2, 10]]) }), undefined);
  });
});
