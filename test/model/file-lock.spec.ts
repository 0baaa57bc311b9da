import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMeshnetError } from '../../src/errors.ts';
import { withFileLock } from '../../src/model/file-lock.ts';

describe('model/file-lock', () => {
  let dir = '';
  let path = '';
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-lock-'));
    path = join(dir, 'lock');
  });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  const calm = (): AbortSignal => new AbortController().signal;

  it('lets one at a time in, and leaves nothing behind', async () => {
    let inside = 0;
    let most = 0;
    let waits = 0;
    const enter = (): Promise<void> => withFileLock(path, { signal: calm(), onWait: () => { waits++; } }, async () => {
      most = Math.max(most, ++inside);
      await new Promise((resolve) => { setImmediate(resolve); });
      inside--;
    });
    await Promise.all([enter(), enter(), enter()]);
    assert.equal(most, 1);
    assert.equal(waits, 2);
    assert.equal(existsSync(path), false);
  });

  it('is free again after a failure inside', async () => {
    await assert.rejects(withFileLock(path, { signal: calm(), onWait: () => {} }, () => Promise.reject(new Error('inside'))), /inside/);
    assert.equal(await withFileLock(path, { signal: calm(), onWait: assert.fail }, () => Promise.resolve(7)), 7);
  });

  it('takes over from a process that is dead, or has been silent for long', async () => {
    const { pid } = spawnSync('true');
    await writeFile(path, String(pid));
    assert.equal(await withFileLock(path, { signal: calm(), onWait: assert.fail }, () => Promise.resolve(1)), 1);
    await writeFile(path, String(process.pid));
    await utimes(path, 1, 1);
    assert.equal(await withFileLock(path, { signal: calm(), onWait: assert.fail }, () => Promise.resolve(2)), 2);
  });

  it('stops waiting when asked', async () => {
    await writeFile(path, String(process.pid));
    const stop = new AbortController();
    const waiting = withFileLock(path, { signal: stop.signal, onWait: () => stop.abort() }, () => Promise.resolve());
    await assert.rejects(waiting, (err) => isMeshnetError(err, 'CANCELLED'));
    assert.ok(existsSync(path));
  });

  it('says so when there is no such folder', async () => {
    const locking = withFileLock(join(dir, 'absent/lock'), { signal: calm(), onWait: () => {} }, () => Promise.resolve());
    await assert.rejects(locking, (err) => isMeshnetError(err, 'FILE_INVALID'));
  });
});
