import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { configuredRange, loadConfig, packagedBootstraps } from '../src/config.ts';
import { isMeshnetError } from '../src/errors.ts';

describe('config', () => {
  let dir: string;
  before(() => { dir = mkdtempSync(path.join(os.tmpdir(), 'meshnet-config-')); });
  after(() => { rmSync(dir, { recursive: true }); });

  function file(text: string): string {
    const name = path.join(dir, 'meshnet.toml');
    writeFileSync(name, text);
    return name;
  }

  it('lets flags win over the environment, and that over the file', () => {
    const toml = file('logLevel = "warn"\n[worker]\nthreads = 3\ncells = 128\n[api]\nkey = "file"\n');
    const config = loadConfig({ worker: { cells: 256 } }, toml, { MESHNET_API_KEY: 'env' });
    assert.equal(config.logLevel, 'warn');
    assert.deepEqual([config.worker.threads, config.worker.cells, config.api.key], [3, 256, 'env']);
  });

  it('is frozen all the way down', () => {
    const config = loadConfig({}, undefined, {});
    assert.throws(() => { (config.worker as { threads: number }).threads = 9; }, TypeError);
  });

  for (const [what, text, field] of [
    ['an unknown field', 'wroker = 1', ''], ['a wrong type', '[worker]\nthreads = "two"', 'worker.threads'],
    ['a short digest', '[use]\nx = "ab"', 'use.x'], ['an impossible port', '[api]\nport = 70000', 'api.port'],
    ['an impossible seam port', '[worker]\nlisten = "0.0.0.0:70000"', 'worker.listen'],
  ] as const) {
    it(`names the field of ${what}`, () => {
      assert.throws(() => loadConfig({}, file(text), {}), (err) => isMeshnetError(err, 'CONFIG_INVALID') && err.details['field'] === field);
    });
  }

  it('refuses a file that is no TOML, naming it', () => {
    assert.throws(() => loadConfig({}, file('a = = b'), {}), (err) => isMeshnetError(err, 'CONFIG_INVALID'));
  });

  it('reads a layer range as half open and refuses an empty one', () => {
    assert.deepEqual(configuredRange(loadConfig({ shard: { model: 'x', layers: '12-24' } }, undefined, {})), { first: 12, last: 24 });
    assert.throws(() => loadConfig({ shard: { model: 'x', layers: '5-5' } }, undefined, {}), (err) => isMeshnetError(err, 'RANGE_INVALID'));
  });

  it('reads the bootstraps of the package', () => {
    assert.ok(Array.isArray(packagedBootstraps()));
  });
});
