import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { spawnSync } from 'node:child_process';
import { isMeshnetError } from '../../src/errors.ts';
import { apiOf, readRuntimeFile, removeRuntimeFile, writeRuntimeFile } from '../../src/cli/runtime-file.ts';

const notRunning = (err: unknown): boolean => isMeshnetError(err, 'NODE_NOT_RUNNING');

describe('cli/runtime-file', () => {
  let dir: string;
  const file = (): string => path.join(dir, 'node.json');

  beforeEach(() => { dir = mkdtempSync(path.join(os.tmpdir(), 'meshnet-runtime-')); });
  afterEach(() => { rmSync(dir, { recursive: true, force: true }); });

  it('tells where the running node is, to its owner alone', () => {
    writeRuntimeFile(dir, { pid: process.pid, api: 'http://127.0.0.1:7070', peer_id: 'p' });
    assert.equal(readRuntimeFile(dir).peer_id, 'p');
    assert.equal(apiOf(undefined, dir), 'http://127.0.0.1:7070');
    assert.equal(statSync(file()).mode & 0o777, 0o600);
  });

  it('makes the directory when the node is the first to use it', () => {
    const inner = path.join(dir, 'deep', 'er');
    writeRuntimeFile(inner, { pid: process.pid, peer_id: 'p' });
    assert.equal(readRuntimeFile(inner).pid, process.pid);
    assert.equal(statSync(inner).mode & 0o777, 0o700);
  });

  it('does not believe a file of a node that is gone, or one that is damaged', () => {
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    writeRuntimeFile(dir, { pid, api: 'http://127.0.0.1:7070', peer_id: 'p' });
    assert.throws(() => readRuntimeFile(dir), notRunning);
    for (const text of ['', '{"pid":', '{"pid":"1"}', '[]']) {
      writeFileSync(file(), text);
      assert.throws(() => readRuntimeFile(dir), notRunning, text);
    }
    rmSync(file());
    assert.throws(() => readRuntimeFile(dir), notRunning);
  });

  it('says so when the running node has no API, unless one is named', () => {
    writeRuntimeFile(dir, { pid: process.pid, peer_id: 'p' });
    assert.throws(() => apiOf(undefined, dir), notRunning);
    assert.equal(apiOf('http://10.0.0.1:1', dir), 'http://10.0.0.1:1');
  });

  it('is removed by its own node only', () => {
    writeRuntimeFile(dir, { pid: process.pid, peer_id: 'p' });
    removeRuntimeFile(dir, process.pid + 1);
    assert.ok(existsSync(file()));
    removeRuntimeFile(dir, process.pid);
    assert.ok(!existsSync(file()));
    removeRuntimeFile(dir, process.pid);
  });
});
