import assert from 'node:assert/strict';
import fc from 'fast-check';
import { laneId, shortSession } from '../../src/domain/lane.ts';

const lane = fc.record({
  session: fc.uint8Array({ minLength: 16, maxLength: 16 }), epoch: fc.nat(20), stage: fc.nat(15),
});

describe('domain/lane', () => {
  it('gives lanes the same id exactly when session, epoch and stage are the same', () => {
    fc.assert(fc.property(lane, lane, (a, b) => {
      const same = Buffer.compare(a.session, b.session) === 0 && a.epoch === b.epoch && a.stage === b.stage;
      assert.equal(laneId(a) === laneId(b), same);
      assert.equal(laneId(a), laneId({ ...a, session: Uint8Array.from(a.session) }));
    }));
  });

  it('never takes epoch 1 stage 11 for epoch 11 stage 1', () => {
    const session = new Uint8Array(16);
    assert.notEqual(laneId({ session, epoch: 1, stage: 11 }), laneId({ session, epoch: 11, stage: 1 }));
  });

  it('shortens a session to the first eight digits of its id', () => {
    const session = Uint8Array.from({ length: 16 }, (_, i) => i);
    assert.equal(shortSession(session), '00010203');
    assert.ok(laneId({ session, epoch: 1, stage: 0 }).startsWith(shortSession(session)));
  });
});
