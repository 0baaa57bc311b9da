import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMeshnetError } from '../../src/errors.ts';
import { Text } from '../../src/proto/worker_pb.js';
import { GrpcClient } from '../../src/worker/grpc.ts';

describe('worker/grpc', () => {
  const folder = mkdtempSync(join(tmpdir(), 'meshnet-grpc-'));
  after(() => rmSync(folder, { recursive: true, force: true }));

  const clientOfNobody = (): GrpcClient => new GrpcClient({ socketPath: join(folder, 'nobody'), token: new Uint8Array(32) });
  const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

  it('waits for a process that does not come until the deadline', async () => {
    const client = clientOfNobody();
    const ready = client.ready({ signal: new AbortController().signal, timeoutMs: 300 });
    await assert.rejects(ready, (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED'));
    client.close();
  });

  it('holds nothing up after a wait that is withdrawn', async () => {
    const before = timers();
    for (let i = 0; i < 20; i++) {
      const client = clientOfNobody();
      const gone = new AbortController();
      const ready = client.ready({ signal: gone.signal, timeoutMs: 60_000 });
      setImmediate(() => gone.abort());
      await assert.rejects(ready, (err) => isMeshnetError(err, 'CANCELLED'));
      client.close();
    }
    const deadline = performance.now() + 5000;
    while (timers() > before + 1 && performance.now() < deadline) {
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
    assert.ok(timers() <= before + 1, `${timers()} timers, before ${before}`);
  });

  it('holds nothing up after a call of a client that was closed', async () => {
    const before = timers();
    const client = clientOfNobody();
    client.close();
    for (let i = 0; i < 20; i++) {
      const call = client.unary(Text.method.describe, {}, { signal: new AbortController().signal, timeoutMs: 60_000 });
      await assert.rejects(call, (err) => isMeshnetError(err, 'WORKER_LOST'));
    }
    assert.ok(timers() <= before + 1, `${timers()} timers, before ${before}`);
  });
});
