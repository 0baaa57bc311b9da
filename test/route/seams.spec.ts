import assert from 'node:assert/strict';
import { SeamEnd } from '../../src/proto/peer_pb.js';
import { seamsBetween, seamsOf } from '../../src/route/seams.ts';

describe('route/seams', () => {
  it('gives a whole model no seam but the entry', () => {
    assert.deepEqual(seamsBetween(1), []);
    assert.deepEqual(seamsOf(0, 1), [{ end: SeamEnd.ENTRY }]);
  });

  it('gives two stages one seam, whose reverse half is the loop', () => {
    assert.equal(seamsBetween(2).length, 1);
    assert.deepEqual(seamsOf(0, 2), [{ end: SeamEnd.ENTRY }, { end: SeamEnd.TO_NEXT, other: 1 }]);
    assert.deepEqual(seamsOf(1, 2), [{ end: SeamEnd.TO_PREVIOUS, other: 0 }]);
  });

  it('closes the ring of three and more by a loop from tail to head', () => {
    assert.deepEqual(seamsOf(0, 3), [
      { end: SeamEnd.ENTRY }, { end: SeamEnd.TO_NEXT, other: 1 }, { end: SeamEnd.LOOP, other: 2 },
    ]);
    assert.deepEqual(seamsOf(1, 3), [{ end: SeamEnd.TO_PREVIOUS, other: 0 }, { end: SeamEnd.TO_NEXT, other: 2 }]);
    assert.deepEqual(seamsOf(2, 3), [{ end: SeamEnd.TO_PREVIOUS, other: 1 }, { end: SeamEnd.LOOP, other: 0 }]);
    assert.deepEqual(seamsBetween(3).at(-1), {
      dialler: 2, diallerEnd: SeamEnd.LOOP, listener: 0, listenerEnd: SeamEnd.LOOP,
    });
  });

  it('names every seam at both of its stages', () => {
    for (let nStages = 1; nStages <= 16; nStages++) {
      const ends = Array.from({ length: nStages }, (_, stage) => seamsOf(stage, nStages)).flat();
      assert.equal(ends.filter(({ other }) => other !== undefined).length, 2 * seamsBetween(nStages).length);
      for (const { dialler, diallerEnd, listener, listenerEnd } of seamsBetween(nStages)) {
        assert.ok(seamsOf(dialler, nStages).some(({ end, other }) => end === diallerEnd && other === listener));
        assert.ok(seamsOf(listener, nStages).some(({ end, other }) => end === listenerEnd && other === dialler));
      }
    }
  });
});
