import assert from 'node:assert/strict';
import { laneKey, smokeLanes, type LoadLane } from '../../../bench/load/lanes.ts';
import { overloadRatios } from '../../../bench/load/ratios.ts';
import { tableOf } from '../../../bench/load/table.ts';
import { OVERLOAD } from './some-rounds.ts';

describe('bench/load/table', () => {
  it('has the figures of a lane, what its parts measured, and why a lane is missing', () => {
    const key = laneKey(smokeLanes().at(-1) as LoadLane);
    const lines = tableOf({
      lanes: [{
        key, systems: ['capacity', 'overload'], long: false, contended: true, rounds: OVERLOAD.good, discarded: [],
        ratios: overloadRatios(OVERLOAD), notes: ['a note'],
      }],
      skipped: [{ lane: 'stall/1b/8', why: 'INTERNAL: no' }],
    });
    assert.match(lines[0] ?? '', /^overload\/generated\/2\/20: 1 rounds, .*CONTENDED/);
    assert.ok(lines.some((line) => /^ {2}overload_admitted_speed +0\.8 {2}\[/.test(line)));
    assert.ok(lines.includes('  capacity: session_tok_s 5'));
    assert.ok(lines.includes('  overload: session_tok_s 4, untyped 0, rss_back_mib 2, fds_back -1, left 0'));
    assert.equal(lines.at(-1), 'skipped: stall/1b/8: INTERNAL: no');
  });
});
