import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TextProcess } from '../../src/worker/text-process.ts';
import { generatedModel, program } from './support/programs.ts';

/** More clients than the process has threads, each with a text of its own. */
const CLIENTS = 400;

describe('native/text-process', function () {
  this.timeout(120_000);
  const folder = mkdtempSync(join(tmpdir(), 'meshnet-text-process-'));
  let text: TextProcess;

  before(async () => {
    const model = await generatedModel({ layers: 6, type: 'f16', tied: 'no' });
    text = new TextProcess({ binary: program('meshnet-worker'), runtimeDir: join(folder, 'run'), model });
    text.start();
    await text.ready({ signal: AbortSignal.timeout(60_000) });
  });

  after(async () => {
    await text.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it('reads the texts of hundreds of clients at once, and refuses none', async () => {
    const texts = Array.from({ length: CLIENTS }, (_, i) => `${i} bottles on the wall. `.repeat(200));
    const signal = AbortSignal.timeout(60_000);
    const ids = await Promise.all(texts.map((one) => text.tokenize(one, { signal })));
    assert.equal(new Set(ids.map((list) => list.join(' '))).size, CLIENTS);
  });

  it('lets a client leave that waits for its turn', async () => {
    const signal = AbortSignal.timeout(60_000);
    const long = 'bottles on the wall. '.repeat(4000);
    const others = Array.from({ length: 20 }, () => text.tokenize(long, { signal }));
    const leaving = new AbortController();
    const left = text.tokenize('late', { signal: leaving.signal });
    leaving.abort();
    await assert.rejects(left, { code: 'CANCELLED' });
    await Promise.all(others);
  });
});
