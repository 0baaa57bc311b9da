import assert from 'node:assert/strict';
import { Progress } from '../../../bench/runner/progress.ts';

describe('bench/runner/progress', () => {
  it('tells lane, rounds, share and time left, and its share never falls', () => {
    let now = 0;
    const said: string[] = [];
    const progress = new Progress([{ name: 'small', work: 1 }, { name: 'large', work: 3 }], (text) => { said.push(text); }, () => now);
    const small = progress.lane(0);
    const large = progress.lane(1);
    small.progress(0, 5);
    now = 60_000;
    small.progress(5, 5);
    large.say('starting');
    large.progress(1, 3);
    // The lane turns out to be short: fewer of more rounds are done.
    large.progress(1, 5);
    large.progress(5, 5);
    assert.deepEqual(said, [
      'lane 1 of 2, small: 0 of 5 rounds, 0 %',
      'lane 1 of 2, small: 5 of 5 rounds, 25 %, about 3 min left',
      'lane 2 of 2, large: starting',
      'lane 2 of 2, large: 1 of 3 rounds, 50 %, about 1 min left',
      'lane 2 of 2, large: 1 of 5 rounds, 50 %, about 1 min left',
      'lane 2 of 2, large: 5 of 5 rounds, 100 %',
    ]);
  });
});
