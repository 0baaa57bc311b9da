import assert from 'node:assert/strict';
import type { CallEnd } from '../../../bench/load/call.ts';
import { countsOf, mib, outcomeOf, sessionSpeed, windowSpeed, type Outcome } from '../../../bench/load/measures.ts';

const ANSWERED: CallEnd = { status: 200, retryAfter: undefined, error: undefined, whole: true, at: 0 };
const REFUSED: CallEnd = { ...ANSWERED, status: 503, retryAfter: 2, whole: false, error: { type: 'server_error', code: 'no_capacity' } };
const outcome = (end: CallEnd, tokens = 8): Outcome => outcomeOf(end, { tokens, output: 8 });

describe('bench/load/measures', () => {
  it('counts the tokens of a window only', () => {
    assert.equal(windowSpeed([[0, 500, 1500], [1000, 2000, 2001]], { from: 0, to: 2000 }), 2);
  });

  it('weighs the speed of a session by its time', () => {
    // Three tokens in one second, and one in three.
    assert.equal(sessionSpeed([[0, 400, 700, 1000], [5000, 8000]]), 1);
    assert.equal(sessionSpeed([]), 0);
  });

  it('takes an answer for one only when it is whole and as long as was asked', () => {
    assert.equal(outcome(ANSWERED), 'answered');
    assert.equal(outcome(ANSWERED, 7), 'untyped');
    assert.equal(outcome({ ...ANSWERED, whole: false }), 'untyped');
  });

  it('takes a refusal for one only when it has a type, and says when to come back', () => {
    assert.equal(outcome(REFUSED, 0), 'refused_503');
    assert.equal(outcome({ ...REFUSED, status: 429 }, 0), 'refused_429');
    const untyped: CallEnd[] = [
      { ...REFUSED, retryAfter: undefined }, { ...REFUSED, retryAfter: 0 }, { ...REFUSED, retryAfter: Number.NaN },
      { ...REFUSED, error: undefined }, { ...REFUSED, error: { type: 'server_error', code: null } },
      { ...REFUSED, status: 500 }, { ...REFUSED, status: 504 }, { ...REFUSED, status: 0 },
    ];
    assert.deepEqual(countsOf(untyped.map((end) => outcome(end, 0))), {
      answered: 0, refused_429: 0, refused_503: 0, untyped: untyped.length,
    });
  });

  it('rounds memory to a tenth, whatever its size', () => {
    assert.deepEqual([mib(0.04), mib(-1.26), mib(1234.56)], [0, -1.3, 1234.6]);
  });
});
