import assert from 'node:assert/strict';
import { StartedParts } from '../../src/node/parts.ts';

describe('node/parts', () => {
  let stopped: string[];
  let warned: string[];
  let parts: StartedParts;

  beforeEach(() => {
    stopped = [];
    warned = [];
    parts = new StartedParts({ log: { warn: ({ part }: { part: string }) => { warned.push(part); } } });
  });

  const stops = (what: string) => async (): Promise<void> => { stopped.push(what); };

  it('stops in reverse, each when the one above it has stopped', async () => {
    parts.add('host', stops('host'));
    parts.add('shard', async () => {
      await new Promise((resolve) => { setImmediate(resolve); });
      stopped.push('shard');
    });
    parts.add('advertiser', () => { stopped.push('advertiser'); });
    await parts.stop({ signal: AbortSignal.timeout(5000) });
    assert.deepEqual(stopped, ['advertiser', 'shard', 'host']);
    assert.deepEqual(warned, []);
    await parts.stop({ signal: AbortSignal.timeout(5000) });
    assert.equal(stopped.length, 3);
  });

  it('goes on below a part that fails', async () => {
    parts.add('host', stops('host'));
    parts.add('throws', () => { throw new Error('now'); });
    parts.add('rejects', async () => { throw new Error('later'); });
    await parts.stop({ signal: AbortSignal.timeout(5000) });
    assert.deepEqual(stopped, ['host']);
    assert.deepEqual(warned, ['rejects', 'throws']);
  });

  it('leaves behind what does not stop in time, and still tells the others to', async () => {
    parts.add('host', stops('host'));
    parts.add('hangs', () => new Promise(() => undefined));
    await parts.stop({ signal: AbortSignal.timeout(20) });
    assert.deepEqual(stopped, ['host']);
    assert.ok(warned.includes('hangs'));
  });
});
