import assert from 'node:assert/strict';
import { candidateId, type Candidate } from '../../src/domain/route.ts';

const CANDIDATE: Candidate = {
  peerId: 'peer', range: { first: 0, last: 6 }, engineClass: 'a', bootId: '00', decodeUs: 1, lanes: 0, sequencesFree: 1,
  cellsFree: 1, lanesResting: 0, cellsResting: 0, unverified: false,
};

describe('domain/route', () => {
  it('knows a candidate again whatever its load', () => {
    assert.equal(candidateId({ ...CANDIDATE, lanes: 9, cellsFree: 0, decodeUs: 7 }), candidateId(CANDIDATE));
  });

  it('takes another peer, range or boot for another candidate', () => {
    for (const other of [{ peerId: 'other' }, { range: { first: 0, last: 7 } }, { range: { first: 1, last: 6 } }, { bootId: '01' }]) {
      assert.notEqual(candidateId({ ...CANDIDATE, ...other }), candidateId(CANDIDATE));
    }
  });
});
