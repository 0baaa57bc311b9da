import assert from 'node:assert/strict';
import { disconnectRatios, overloadRatios, stallRatios } from '../../../bench/load/ratios.ts';
import type { Ratio } from '../../../bench/runner/rounds.ts';
import { isMeshnetError } from '../../../src/errors.ts';
import { OVERLOAD, roundsOf, STALL } from './some-rounds.ts';

const medians = (ratios: Record<string, Ratio>): Record<string, number> =>
  Object.fromEntries(Object.entries(ratios).map(([name, { median }]) => [name, median]));

describe('bench/load/ratios', () => {
  it('holds the others against themselves, and takes memory from the part with the stop', () => {
    assert.deepEqual(medians(stallRatios(STALL)), { stall_rss_growth_mib: 5, stall_others_speed: 0.95 });
  });

  it('names a disconnect by its phase', () => {
    assert.deepEqual(medians(disconnectRatios('queued', roundsOf({ mesh: { free_ms: 12.5 } }))), { disconnect_queued_ms: 12.5 });
  });

  it('holds sessions in an overload against capacity, and lets nothing be left', () => {
    assert.deepEqual(medians(overloadRatios(OVERLOAD)), {
      overload_admitted_speed: 0.8, overload_untyped: 0, overload_rss_back_mib: 2, overload_fds_back: -1, overload_left: 0,
    });
  });

  it('keeps what an overload without an answer did, and makes no figure where there is none at capacity', () => {
    const of = (capacity: number): Record<string, number> => medians(overloadRatios(roundsOf({
      capacity: { session_tok_s: capacity },
      overload: { session_tok_s: 0, untyped: 9, rss_back_mib: 0, fds_back: 0, left: 0 },
    })));
    assert.deepEqual([of(5)['overload_admitted_speed'], of(5)['overload_untyped']], [0, 9]);
    assert.throws(() => of(0), (err) => isMeshnetError(err, 'INTERNAL'));
  });
});
