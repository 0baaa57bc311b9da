import assert from 'node:assert/strict';
import { activityLines, timeText } from '../../src/cli/activity-text.ts';

describe('cli/activity-text', () => {
  it('says what there is to say, the commonest refusal first, in 80 columns', () => {
    const shown = activityLines({
      requests: { answered: 12, refused: 4, failed: 1, cancelled: 2, waiting: 3, open: 5 },
      firstToken: { p50: 310, p95: 1240 }, perToken: { p50: 22.04, p95: 41 },
      seam: { queue: 1, compute: 9.84, handover: 0.21, network: 11 },
      refusals: { no_route: 1, no_capacity: 3, 'bad\u001b[2J': 0 },
    });
    assert.deepEqual(shown, [
      ' Requests  12 answered  4 refused  1 failed  2 cancelled',
      ' Now       5 open  3 waiting',
      ' First     token after 310 ms, 95 % within 1.2 s',
      ' Then      a token every 22.0 ms, 95 % within 41.0 ms',
      ' Of it     queue 1.0 ms  compute 9.8 ms  hand-over 0.2 ms  network 11.0 ms',
      ' Refused   no_capacity 3  no_route 1  bad�[2J 0',
    ]);
    assert.ok(shown.every((line) => line.length <= 80));
  });

  it('leaves out what has not been', () => {
    const requests = { answered: 0, refused: 0, failed: 0, cancelled: 0, waiting: 0, open: 0 };
    assert.deepEqual(activityLines({ requests, refusals: {} }), [
      ' Requests  0 answered  0 refused  0 failed  0 cancelled',
      ' Now       0 open  0 waiting',
    ]);
  });

  it('gives times the digits that they are worth', () => {
    assert.deepEqual([0, 0.04, 9.96, 99.9, 100, 999, 1000, 61_000].map(timeText),
      ['0.0 ms', '0.0 ms', '10.0 ms', '99.9 ms', '100 ms', '999 ms', '1.0 s', '61.0 s']);
  });
});
