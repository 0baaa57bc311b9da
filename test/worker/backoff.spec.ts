import assert from 'node:assert/strict';
import { Backoff } from '../../src/worker/backoff.ts';

describe('worker/backoff', () => {
  it('doubles the wait up to its cap, and gives up', () => {
    const backoff = new Backoff({ baseMs: 100, capMs: 500, maxFailures: 6, random: () => 1 });
    assert.deepEqual([1, 2, 3, 4, 5, 6].map(() => backoff.failed(0)), [100, 200, 400, 500, 500, undefined]);
    assert.equal(backoff.failures, 6);
  });

  it('spreads the waits over half of their length', () => {
    assert.equal(new Backoff({ baseMs: 100, random: () => 0 }).failed(0), 50);
    assert.equal(new Backoff({ baseMs: 100, random: () => 0.5 }).failed(0), 75);
  });

  it('forgives the failures before a useful life', () => {
    const backoff = new Backoff({ baseMs: 100, stableMs: 1_000, maxFailures: 3, random: () => 1 });
    assert.equal(backoff.failed(0), 100);
    assert.equal(backoff.failed(999), 200);
    assert.equal(backoff.failed(1_000), 100);
  });
});
