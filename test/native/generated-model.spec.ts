import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../../src/config.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import type { Models } from '../../src/model/models.ts';

describe('native/generated-model', () => {
  let dir = '';
  beforeEach(async () => { dir = await mkdtemp(join(tmpdir(), 'meshnet-generated-')); });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  const modelsIn = (name: string): Models => configuredModels(loadConfig({ cacheDir: join(dir, name) }, undefined, {}));
  const options = { signal: new AbortController().signal };

  it('is the same model wherever it is made, and passes the checks of a file', async function () {
    this.timeout(60_000);
    const [a, b] = [await modelsIn('a').resolve('test', options), await modelsIn('b').resolve('test', options)];
    assert.deepEqual(a.digest, b.digest);
    assert.equal(a.manifest.architecture, 'llama');
    assert.equal(a.manifest.nLayer, 8);
    const again = await modelsIn('a').resolve('test', options);
    assert.equal(again.path, a.path);
  });

  it('has the shape that its source asks for', async function () {
    this.timeout(60_000);
    const { manifest } = await modelsIn('a').resolve('generated:layers=3,embd=64,ffn=128,type=q8_0,tied=yes', options);
    assert.equal(manifest.nLayer, 3);
    assert.ok(!manifest.tensors.some(({ name }) => name === 'output.weight'));
    assert.equal(manifest.tensors.find(({ name }) => name === 'blk.2.ffn_down.weight')?.type, 8);
  });

  it('says what the generator refuses, and leaves nothing behind', async function () {
    this.timeout(60_000);
    await assert.rejects(modelsIn('a').resolve('generated:layers=100000', options),
      (err) => isMeshnetError(err, 'SOURCE_UNAVAILABLE') && String(err.details['reason']).includes('--layers'));
    assert.deepEqual(await readdir(join(dir, 'a/models')), []);
  });
});
