import assert from 'node:assert/strict';
import { endedByLimit } from '../../../bench/gate5/fit.ts';

describe('bench/gate5/fit', () => {
  it('takes no other end for one of a limit than being killed or too late', () => {
    assert.equal(endedByLimit({ late: false, kills: 1 }), true);
    assert.equal(endedByLimit({ late: true, kills: 0 }), true);
    assert.equal(endedByLimit({ late: false, kills: 0 }), false);
  });
});
