import assert from 'node:assert/strict';
import { END_ID, FIRST_ID, prompts } from '../../../bench/runner/prompts.ts';

describe('bench/runner/prompts', () => {
  const shape = { sessions: 4, tokens: 512 };

  it('gives every system of a round the same prompts, and no other round the same again', () => {
    assert.deepEqual(prompts('1b/128/1/greedy 0', shape), prompts('1b/128/1/greedy 0', shape));
    const seen = new Set(
      ['1b/128/1/greedy 0', '1b/128/1/greedy 1', '1b/128/4/greedy 0'].flatMap((seed) =>
        prompts(seed, shape).map((ids) => ids.join(' ')),
      ),
    );
    assert.equal(seen.size, 12);
  });

  it('uses ids that every model has and none reserves, spread over all of them', () => {
    const ids = prompts('seed', shape).flat();
    assert.ok(ids.every((id) => Number.isInteger(id) && id >= FIRST_ID && id < END_ID));
    const mean = ids.reduce((sum, id) => sum + id, 0) / ids.length;
    assert.ok(Math.abs(mean - (FIRST_ID + END_ID) / 2) < 1000, String(mean));
  });
});
