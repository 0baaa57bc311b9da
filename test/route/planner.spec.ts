import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { Candidate } from '../../src/domain/route.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { planRoute, uncovered } from '../../src/route/planner.ts';

function shard(first: number, last: number, over: Partial<Candidate> = {}): Candidate {
  return {
    peerId: `peer-${first}-${last}`, range: { first, last }, engineClass: 'a', bootId: '00', decodeUs: 1000 * (last - first),
    lanes: 0, sequencesFree: 4, cellsFree: 4096, lanesResting: 0, cellsResting: 0, unverified: false, ...over,
  };
}

const half = (): number => 0.5;

function plan(candidates: Candidate[], over = {}): string[] {
  return planRoute({ nLayer: 12, positions: 100, candidates, random: half, ...over }).map(({ candidate }) => candidate.peerId);
}

describe('route/planner', () => {
  it('chains shards that meet at equal boundaries', () => {
    assert.deepEqual(plan([shard(6, 12), shard(0, 6)]), ['peer-0-6', 'peer-6-12']);
  });

  it('prefers a whole model to a split that computes the same', () => {
    assert.deepEqual(plan([shard(0, 6), shard(6, 12), shard(0, 12)]), ['peer-0-12']);
  });

  it('avoids a busy shard when an idle one serves the same layers', () => {
    const busy = shard(6, 12, { peerId: 'busy', lanes: 3 });
    const idle = shard(6, 12, { peerId: 'idle' });
    assert.deepEqual(plan([shard(0, 6), busy, idle]), ['peer-0-6', 'idle']);
  });

  it('never mixes engine classes', () => {
    assert.throws(() => plan([shard(0, 6), shard(6, 12, { engineClass: 'b' })]),
      (err) => isMeshnetError(err, 'NO_ROUTE') && (err.details['missing'] as string[]).length === 0);
  });

  it('names the layers that nobody serves', () => {
    assert.throws(() => plan([shard(0, 4), shard(6, 9)]),
      (err) => isMeshnetError(err, 'NO_ROUTE') && assert.deepEqual(err.details['missing'], ['4-6', '9-12']) === undefined);
  });

  it('leaves out shards that were excluded, and full ones while there are others', () => {
    const full = shard(0, 6, { peerId: 'full', sequencesFree: 0 });
    const small = shard(0, 6, { peerId: 'small', cellsFree: 99 });
    assert.deepEqual(plan([full, small, shard(0, 6), shard(6, 12)]), ['peer-0-6', 'peer-6-12']);
    assert.deepEqual(plan([full, shard(6, 12)]), ['full', 'peer-6-12'], 'a hint of load may be old: better ask than have no route');
    assert.throws(() => plan([shard(0, 6), shard(6, 12)], { excluded: new Set(['peer-0-6/0-6/00']) }),
      (err) => isMeshnetError(err, 'NO_ROUTE'));
  });

  it('takes a shard whose sessions rest for an idle one with room, though one that need not end any of them goes first', () => {
    const full = { lanes: 4, sequencesFree: 0, cellsFree: 50 };
    const resting = shard(0, 12, { ...full, peerId: 'resting', lanesResting: 4, cellsResting: 50 });
    const idle = shard(0, 12, { peerId: 'idle' });
    const slow = shard(0, 12, { peerId: 'slow', decodeUs: idle.decodeUs * 2 });
    assert.deepEqual(plan([resting, idle]), ['idle']);
    assert.deepEqual(plan([resting, slow]), ['resting']);
    assert.deepEqual(plan([{ ...resting, lanesResting: 0 }, slow]), ['slow']);
    assert.deepEqual(plan([{ ...resting, cellsResting: 49 }, slow]), ['slow']);
    // Told before the lanes were.
    assert.deepEqual(plan([{ ...idle, lanesResting: 9 }, { ...slow, decodeUs: idle.decodeUs - 1 }]), ['slow']);
  });

  it('shares ties between equals', () => {
    const twins = [shard(0, 12, { peerId: 'x' }), shard(0, 12, { peerId: 'y' })];
    let seed = 1;
    const random = (): number => (seed = (seed * 48271) % 2147483647) / 2147483647;
    const seen = new Set(Array.from({ length: 20 }, () => plan(twins, { random })[0]));
    assert.deepEqual([...seen].sort((a, b) => (a ?? '').localeCompare(b ?? '')), ['x', 'y']);
  });

  it('gives a contiguous cover that is never dearer than any other, on random meshes', () => {
    const ranges = fc.array(fc.tuple(fc.nat(11), fc.integer({ min: 1, max: 12 }), fc.nat(5000)), { maxLength: 9 });
    fc.assert(fc.property(ranges, (offers) => {
      const candidates = offers.filter(([first, last]) => first < last)
        .map(([first, last, decodeUs], index) => shard(first, last, { peerId: `p${index}`, decodeUs }));
      const best = bruteForce(candidates);
      if (best === undefined) {
        assert.throws(() => plan(candidates), (err) => isMeshnetError(err, 'NO_ROUTE'));
        return;
      }
      const stages = planRoute({ nLayer: 12, positions: 100, candidates, random: half });
      assert.equal(stages[0]?.candidate.range.first, 0);
      assert.equal(stages.at(-1)?.candidate.range.last, 12);
      stages.slice(1).forEach((stage, i) => assert.equal(stage.candidate.range.first, stages[i]?.candidate.range.last));
      const cost = stages.reduce((sum, { candidate }) => sum + candidate.decodeUs, 0) + 2000 * (stages.length - 1);
      assert.equal(cost, best);
    }));
  });

  it('lists the gaps of a cover', () => {
    assert.deepEqual(uncovered([{ first: 2, last: 5 }, { first: 4, last: 8 }], 10), [{ first: 0, last: 2 }, { first: 8, last: 10 }]);
    assert.deepEqual(uncovered([{ first: 0, last: 10 }], 10), []);
  });
});

function bruteForce(candidates: Candidate[], from = 0): number | undefined {
  if (from === 12) {
    return 0;
  }
  let best: number | undefined;
  for (const candidate of candidates.filter(({ range }) => range.first === from)) {
    const rest = bruteForce(candidates, candidate.range.last);
    if (rest !== undefined) {
      const cost = candidate.decodeUs + rest + (from === 0 ? 0 : 2000);
      best = best === undefined ? cost : Math.min(best, cost);
    }
  }
  return best;
}
