import assert from 'node:assert/strict';
import { eachPercent, type NodeEvent } from '../../src/node/events.ts';

describe('node/events', () => {
  it('tells a progress by whole percents, and each phase from its start', () => {
    const told: NodeEvent[] = [];
    const progress = eachPercent((event) => { told.push(event); });
    for (let i = 0; i <= 1000; i++) {
      progress('download', i / 1000);
    }
    assert.equal(told.length, 101);
    progress('verify', 1);
    assert.deepEqual(told.slice(-2), [
      { event: 'progress', phase: 'download', share: 1 }, { event: 'progress', phase: 'verify', share: 1 },
    ]);
  });
});
