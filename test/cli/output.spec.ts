import assert from 'node:assert/strict';
import { MeshnetError, isMeshnetError } from '../../src/errors.ts';
import { assertCount, EXIT, exitCodeOf, givenUp, interruptSignal, printable } from '../../src/cli/output.ts';

describe('cli/output', () => {
  it('gives every kind of failure its exit code', () => {
    for (const [code, exit] of [
      ['CANCELLED', EXIT.interrupted], ['CONFIG_INVALID', EXIT.usage], ['RANGE_INVALID', EXIT.usage],
      ['REQUEST_INVALID', EXIT.usage], ['NO_ROUTE', EXIT.failed], ['INTERNAL', EXIT.failed],
    ] as const) {
      assert.equal(exitCodeOf(new MeshnetError(code)), exit, code);
    }
    assert.equal(exitCodeOf(new TypeError('a bug')), EXIT.failed);
    assert.deepEqual(EXIT, { ok: 0, failed: 1, usage: 2, interrupted: 130 });
  });

  it('lets a terminal see text and lines, but nothing that would control it', () => {
    assert.equal(printable('Grüße, 世界 🙂\n\tdone'), 'Grüße, 世界 🙂\n\tdone');
    assert.equal(printable('\u001b]52;c;ZXZpbA==\u0007\u001b[2J\r\u009b1m\u007f'), '�]52;c;ZXZpbA==��[2J��1m�');
  });

  it('takes two of the same signal, at once, for one Ctrl-C', () => {
    const signals = ['SIGINT', 'SIGTERM'] as const;
    const others = signals.map((name) => process.rawListeners(name) as NodeJS.SignalsListener[]);
    const exit = process.exit.bind(process);
    try {
      // The test runner ends at these, too.
      signals.forEach((name) => process.removeAllListeners(name));
      process.exit = () => assert.fail('the second one ended the process');
      const signal = interruptSignal();
      assert.equal(signal.aborted, false);
      process.emit('SIGINT');
      process.emit('SIGINT');
      assert.equal(signal.aborted, true);
    } finally {
      process.exit = exit;
      signals.forEach((name, i) => {
        process.removeAllListeners(name);
        others[i]?.forEach((listener) => process.on(name, listener));
      });
    }
  });

  it('takes whole numbers above 0 only', () => {
    assertCount('stages', 3);
    assertCount('stages', undefined);
    for (const value of [0, -1, 1.5, Number.NaN, Infinity]) {
      assert.throws(() => assertCount('stages', value),
        (err) => isMeshnetError(err, 'CONFIG_INVALID') && err.details['field'] === 'stages');
    }
  });

  it('tells a late wait from one that a person ended', async () => {
    const late = AbortSignal.timeout(1);
    await new Promise((resolve) => { late.addEventListener('abort', resolve); });
    assert.equal(givenUp(late, 'it took too long').code, 'DEADLINE_EXCEEDED');
    assert.equal(givenUp(AbortSignal.abort(), 'it took too long').code, 'CANCELLED');
  });
});
