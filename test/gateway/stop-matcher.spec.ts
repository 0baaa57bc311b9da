import assert from 'node:assert/strict';
import fc from 'fast-check';
import { StopMatcher } from '../../src/gateway/stop-matcher.ts';

function run(stops: readonly string[], pieces: readonly Uint8Array[]): { text: string; stopped: boolean; counts: number[] } {
  const matcher = new StopMatcher(stops);
  const out: Uint8Array[] = [];
  const counts: number[] = [];
  let stopped = false;
  for (const piece of pieces) {
    const step = matcher.push(piece);
    out.push(step.bytes);
    counts.push(step.bytes.length);
    stopped ||= step.stopped;
  }
  out.push(matcher.flush());
  return { text: Buffer.concat(out).toString(), stopped, counts };
}

const bytes = (text: string): Uint8Array => Buffer.from(text);

/** Where the first stop string becomes complete; of several the longest. By the definition, not by the algorithm. */
function expected(text: string, stops: readonly string[]): string {
  for (let end = 1; end <= text.length; end++) {
    const hits = stops.filter((stop) => stop !== '' && text.slice(0, end).endsWith(stop));
    if (hits.length > 0) {
      return text.slice(0, end - Math.max(...hits.map((hit) => hit.length)));
    }
  }
  return text;
}

describe('gateway/stop-matcher', () => {
  it('finds a stop string across pieces and leaves it out', () => {
    assert.deepEqual(run(['END'], [bytes('one E'), bytes('N'), bytes('D two')]), { text: 'one ', stopped: true, counts: [4, 0, 0] });
  });

  it('gives out what only looked like one', () => {
    assert.deepEqual(run(['END'], [bytes('one EN'), bytes('ough')]), { text: 'one ENough', stopped: false, counts: [4, 6] });
  });

  it('gives out held back text at the end', () => {
    assert.equal(run(['\n\nUser:'], [bytes('bye\n\nUser')]).text, 'bye\n\nUser');
  });

  it('finds a stop string of several bytes a character, one byte at a time', () => {
    const pieces = [...Buffer.from('a→b')].map((byte) => Uint8Array.of(byte));
    assert.equal(run(['→'], pieces).text, 'a');
  });

  it('gives nothing after a stop string', () => {
    const matcher = new StopMatcher(['x']);
    assert.equal(matcher.push(bytes('x')).stopped, true);
    assert.deepEqual(matcher.push(bytes('more')), { bytes: new Uint8Array(), stopped: true });
    assert.equal(matcher.flush().length, 0);
  });

  it('cuts at the same place however the text is cut into pieces', () => {
    const letters = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 30 });
    const stop = fc.string({ unit: fc.constantFrom('a', 'b', 'c'), minLength: 1, maxLength: 4 });
    fc.assert(fc.property(letters, fc.array(stop, { maxLength: 4 }), fc.array(fc.nat(5), { maxLength: 40 }), (text, stops, cuts) => {
      const pieces: Uint8Array[] = [];
      let at = 0;
      for (const length of cuts) {
        pieces.push(bytes(text.slice(at, at + length)));
        at += length;
      }
      pieces.push(bytes(text.slice(at)));
      const result = run(stops, pieces);
      assert.equal(result.text, expected(text, stops));
      assert.equal(result.stopped, expected(text, stops) !== text);
    }));
  });
});
