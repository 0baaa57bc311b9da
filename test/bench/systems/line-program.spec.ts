import assert from 'node:assert/strict';
import { LineProgram } from '../../../bench/systems/line-program.ts';

const timeoutMs = 10_000;

describe('bench/systems/line-program', () => {
  it('asks nothing once it is told to stop, so that the next answer belongs to the next question', async () => {
    const echo = new LineProgram('cat', []);
    try {
      await assert.rejects(echo.ask('1', { timeoutMs, signal: AbortSignal.abort(new Error('stopped')) }), { message: 'stopped' });
      assert.equal(await echo.ask('2', { timeoutMs }), 2);
    } finally {
      await echo.stop();
    }
  });
});
