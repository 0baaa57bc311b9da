import assert from 'node:assert/strict';
import { contractLanes, nameOf, type GridLane } from '../../../bench/concurrency/lanes.ts';
import { tableOf } from '../../../bench/concurrency/table.ts';
import { someRecord } from './some-rounds.ts';

const GRID = contractLanes().filter((lane): lane is GridLane => lane.kind === 'grid');

describe('bench/concurrency/table', () => {
  it('has a line for each lane by sessions and delay, with theory beside it', () => {
    const lanes = GRID.filter((lane) => ['1b/32/8/0', '1b/32/8/20', '1b/32/1/20'].includes(nameOf(lane))).map((lane) => someRecord(lane));
    const [head = '', ...rows] = tableOf({ lanes, skipped: [] });
    assert.match(head, /^sessions +one way +tok\/s +theory +one8 tok\/s/);
    assert.deepEqual(rows.slice(0, 3).map((row) => row.split(/ {2,}/).slice(0, 5)), [
      ['1', '20 ms', '90', '100', '60'], ['8', '0 ms', '90', '100', '60'], ['8', '20 ms', '90', '100', '60'],
    ]);
    assert.ok(rows.includes('  stock8: decode 62.5 tok/s'));
  });

  it('says why a lane is missing, and which one is judged by nothing', () => {
    const [lane] = GRID as [GridLane];
    const lines = tableOf({ lanes: [someRecord(lane, { contended: true })], skipped: [{ lane: '1b/32/8/20', why: 'INTERNAL: no' }] });
    assert.ok(lines.some((line) => line.startsWith(`${nameOf(lane)}: 1 rounds`) && line.includes('CONTENDED')));
    assert.equal(lines.at(-1), 'skipped: 1b/32/8/20: INTERNAL: no');
  });
});
