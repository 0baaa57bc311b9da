import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { RateLimit } from '../../src/net/rate-limit.ts';
import { ManualClock } from './manual-clock.ts';

describe('net/rate-limit', () => {
  it('lets a burst through, then so many a second, each peer on its own', () => {
    const clock = new ManualClock();
    const rate = new RateLimit({ burst: 3, perSecond: 2, clock });
    const takes = (peer: string): boolean => {
      try {
        rate.take(peer);
        return true;
      } catch (err) {
        assert.ok(err instanceof MeshnetError && err.code === 'RATE_EXCEEDED');
        return false;
      }
    };
    assert.deepEqual([1, 2, 3, 4].map(() => takes('a')), [true, true, true, false]);
    assert.equal(takes('b'), true);
    clock.advance(500);
    assert.deepEqual([takes('a'), takes('a')], [true, false]);
    clock.advance(60_000);
    assert.deepEqual([1, 2, 3, 4].map(() => takes('a')), [true, true, true, false]);
  });
});
