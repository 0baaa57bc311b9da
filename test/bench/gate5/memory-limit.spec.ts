import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { MemoryLimit } from '../../../bench/gate5/memory-limit.ts';
import { isMeshnetError } from '../../../src/errors.ts';

const run = promisify(execFile);
const MIB = 2 ** 20;
/** Holds so many MiB, every page written. */
const HOLD = 'const held = Buffer.alloc(Number(process.argv[1]) * 1048576, 1); process.stdout.write(String(held.length));';

describe('bench/gate5/memory-limit', function () {
  // A program that is killed for its memory fills it first.
  this.timeout(60_000);
  let limit: MemoryLimit | undefined;

  before(async function () {
    try {
      limit = await MemoryLimit.create(`meshnet-test-${process.pid}`, 192 * MIB);
    } catch (err) {
      assert.ok(isMeshnetError(err, 'CONFIG_INVALID'));
      console.log(`    skipped: ${err.message}`);
      this.skip();
    }
  });
  after(() => limit?.remove());

  const hold = (mib: number): Promise<{ stdout: string }> => {
    const [command, ...args] = [...limit?.launcher ?? [], process.execPath, '-e', HOLD, '--', String(mib)];
    return run(command, args);
  };

  it('lets live what keeps below it, and kills what does not', async () => {
    assert.equal((await hold(16)).stdout, String(16 * MIB));
    assert.equal(await limit?.kills(), 0);
    await assert.rejects(hold(400), (err: { signal: string }) => err.signal === 'SIGKILL');
    assert.equal(await limit?.kills(), 1);
  });
});
