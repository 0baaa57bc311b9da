import assert from 'node:assert/strict';
import { cheapFirst, contractLanes, laneKey, work } from '../../../bench/gate1/lanes.ts';
import { laneName } from '../../../bench/runner/lane-record.ts';

describe('bench/gate1/lanes', () => {
  it('has the lanes of the contract and no other', () => {
    const names = contractLanes().map((lane) => laneName(laneKey(lane)));
    assert.equal(new Set(names).size, names.length);
    assert.deepEqual(
      new Set(names),
      new Set([
        ...['smollm2', '1b'].flatMap((model) =>
          [128, 2048].flatMap((context) => [1, 4].map((sessions) => `${model}/${context}/${sessions}/greedy`)),
        ),
        'smollm2/128/1/sampled',
        'smollm2/128/4/sampled',
      ]),
    );
    assert.ok(contractLanes().every(({ output }) => output === 24));
  });

  it('starts with the cheap ones', () => {
    const lanes = cheapFirst(contractLanes());
    const costs = lanes.map(work);
    assert.deepEqual(
      costs,
      costs.toSorted((a, b) => a - b),
    );
    assert.equal(laneName(laneKey(lanes.at(-1) as (typeof lanes)[0])), '1b/2048/4/greedy');
  });
});
