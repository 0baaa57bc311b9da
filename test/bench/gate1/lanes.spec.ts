import assert from 'node:assert/strict';
import { remainingMs } from '../../../bench/gate1/estimate.ts';
import { contractLanes, laneName, work } from '../../../bench/gate1/lanes.ts';

describe('bench/gate1/lanes', () => {
  it('has the lanes of the contract and no other', () => {
    const names = contractLanes().map(laneName);
    assert.equal(new Set(names).size, names.length);
    assert.deepEqual(new Set(names), new Set([
      ...['smollm2', '1b'].flatMap((model) => [128, 2048].flatMap((context) => [1, 4].map((sessions) => `${model}/${context}/${sessions}/greedy`))),
      'smollm2/128/1/sampled', 'smollm2/128/4/sampled',
    ]));
    assert.ok(contractLanes().every(({ output }) => output === 24));
  });

  it('starts with the cheap ones', () => {
    const costs = contractLanes().map(work);
    assert.deepEqual(costs, costs.toSorted((a, b) => a - b));
    assert.equal(contractLanes().map(laneName).at(-1), '1b/2048/4/greedy');
  });

  it('guesses the time that remains from the last lane, with the rounds that the contract asks for', () => {
    const lanes = contractLanes();
    const [first, last] = [lanes[0], lanes.at(-1)] as [typeof lanes[0] & object, typeof lanes[0] & object];
    const even = remainingMs([last], [{ lane: last, roundMs: 200_000 }]);
    assert.ok(even > 2 * 200_000 && even < 3 * 200_000, String(even));
    assert.ok(remainingMs([last], [{ lane: first, roundMs: 1000 }]) > remainingMs([last], [{ lane: first, roundMs: 500 }]));
    assert.equal(remainingMs([], []), 0);
  });
});
