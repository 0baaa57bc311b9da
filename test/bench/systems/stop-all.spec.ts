import assert from 'node:assert/strict';
import { NotStoppedError, stopAll } from '../../../bench/systems/stop-all.ts';

describe('bench/systems/stop-all', () => {
  it('stops all of them, and tells of the first that did not', async () => {
    let stopped = 0;
    const good = { stop: () => { stopped++; return Promise.resolve(); } };
    const bad = (why: string) => ({ stop: () => Promise.reject(new Error(why)) });
    await stopAll([good]);
    await assert.rejects(stopAll([bad('a process stays'), bad('another one too'), good]), (err) =>
      err instanceof NotStoppedError && err.message === 'could not be stopped: a process stays');
    assert.equal(stopped, 2);
  });

  it('says it once, however deep that was', async () => {
    const inner = { stop: () => stopAll([{ stop: () => Promise.reject(new Error('it stays')) }]) };
    await assert.rejects(stopAll([inner]), { code: 'INTERNAL', message: 'could not be stopped: it stays' });
  });
});
