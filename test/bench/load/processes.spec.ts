import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { familyOf, growths, readRss, readStat, usageOf } from '../../../bench/load/processes.ts';
import { isMeshnetError } from '../../../src/errors.ts';

describe('bench/load/processes', () => {
  it('reads a process whose name holds brackets and spaces', () => {
    assert.deepEqual(readStat('12 (a) b (c) S 7 12 12 0'), { pid: 12, name: 'a) b (c', parent: 7 });
    assert.equal(readStat(''), undefined);
  });

  it('reads resident memory in MiB', () => {
    assert.equal(readRss('Name:\tx\nVmHWM:\t  4096 kB\nVmRSS:\t  2048 kB\n'), 2);
    assert.ok(Number.isNaN(readRss('Name:\tx\n')));
  });

  it('finds what a process has started, and what that has', async () => {
    const child = spawn('sh', ['-c', 'cat; true'], { stdio: ['pipe', 'pipe', 'ignore'] });
    try {
      // It echoes: so both are there.
      child.stdin.write('here\n');
      await once(child.stdout, 'data');
      const family = await familyOf({ name: 'root', pid: child.pid ?? 0 });
      assert.deepEqual(family.map(({ name }) => name), ['root', 'root: cat']);
      const usage = await usageOf({ name: 'root', pid: child.pid ?? 0 });
      assert.ok(usage.rssMiB > 0 && usage.fds >= 3);
    } finally {
      child.stdin.end();
      await once(child, 'close');
    }
    await assert.rejects(usageOf({ name: 'root', pid: child.pid ?? 0 }), (err) => isMeshnetError(err, 'INTERNAL'));
  });

  it('holds each process against itself', () => {
    const before = [{ rssMiB: 10, fds: 5 }, { rssMiB: 20, fds: 6 }];
    const now = [{ rssMiB: 12, fds: 5 }, { rssMiB: 19, fds: 8 }];
    assert.deepEqual(growths(before, now, 'rssMiB'), [2, -1]);
    assert.deepEqual(growths(before, now, 'fds'), [0, 2]);
  });
});
