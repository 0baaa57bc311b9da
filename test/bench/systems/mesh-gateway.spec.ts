import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { LineProgram } from '../../../bench/systems/line-program.ts';

const PROGRAM = path.join(import.meta.dirname, '../../../bench/systems/mesh-gateway.ts');
const ANSWER = { timeoutMs: 60_000 };

describe('bench/systems/mesh-gateway', function () {
  // A node starts slowly on a busy machine.
  this.timeout(90_000);
  let dir: string;
  let gateway: LineProgram;

  before(async () => {
    dir = await mkdtemp(path.join(os.tmpdir(), 'meshnet-gateway-'));
    gateway = new LineProgram(process.execPath, [
      PROGRAM, '--data-dir', dir, '--cache-dir', dir, '--listen', '/ip4/127.0.0.1/tcp/0', '--digest', 'ab'.repeat(32),
    ]);
  });
  after(async () => {
    await gateway.stop();
    await rm(dir, { recursive: true });
  });

  it('says where it listens when it is ready', async () => {
    const { ready, addresses } = await gateway.next<{ ready: boolean; addresses: string[] }>(ANSWER);
    assert.equal(ready, true);
    assert.match(addresses[0] ?? '', /^\/ip4\/127\.0\.0\.1\/tcp\/\d+\/p2p\//);
  });

  it('answers what it cannot read by an error, and goes on', async () => {
    for (const line of ['no JSON', '{"prompts":[[]],"output":1,"sampling":null}', '{"prompts":[[1]]}']) {
      const { error } = await gateway.ask<{ error: string }>(line, ANSWER);
      assert.equal(typeof error, 'string', line);
    }
  });
});
