import assert from 'node:assert/strict';
import { RestingSessions, type Resting } from '../../src/serve/resting.ts';
import type { ShardService } from '../../src/serve/shard-service.ts';

const [ONE, OTHER] = [{}, {}] as [ShardService, ShardService];

function session(positions: number, { shard = ONE, peerId = 'a' } = {}): Resting {
  return { peerId, positions, lane: { shard } };
}

describe('serve/resting', () => {
  let resting: RestingSessions<Resting>;

  beforeEach(() => {
    resting = new RestingSessions();
  });

  it('finds the fewest that have so many positions, those first that have rested longest', () => {
    const [first, second, third] = [session(100), session(50), session(100)];
    for (const one of [first, second, third]) {
      resting.add(one);
    }
    assert.deepEqual(resting.thatHave(90, ONE), [first]);
    assert.deepEqual(resting.thatHave(150, ONE), [first, second]);
    assert.deepEqual(resting.thatHave(250, ONE), [first, second, third]);
    resting.add(first);
    assert.deepEqual(resting.thatHave(60, ONE), [second, third]);
  });

  it('finds one when positions are not what is missing, and none when all of them are not enough', () => {
    assert.equal(resting.thatHave(0, ONE), undefined);
    const only = session(100);
    resting.add(only);
    assert.deepEqual(resting.thatHave(-500, ONE), [only]);
    assert.equal(resting.thatHave(101, ONE), undefined);
    resting.delete(only);
    assert.equal(resting.thatHave(1, ONE), undefined);
    assert.equal(resting.size, 0);
  });

  it('keeps shards and peers apart', () => {
    const [here, there] = [session(100), session(100, { shard: OTHER, peerId: 'b' })];
    resting.add(there);
    resting.add(here);
    assert.deepEqual(resting.thatHave(1, ONE), [here]);
    assert.equal(resting.thatHave(101, OTHER), undefined);
    assert.deepEqual([resting.of(ONE), resting.of(OTHER)], [{ sessions: 1, positions: 100 }, { sessions: 1, positions: 100 }]);
    assert.equal(resting.oldestOf('b'), there);
    assert.equal(resting.oldestOf('c'), undefined);
  });
});
