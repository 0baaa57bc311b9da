import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { isMeshnetError } from '../../src/errors.ts';
import { NODE_FLAGS, NodeProcess } from '../../src/cli/node-process.ts';

const LISTENING = '{"event":"listening","peer_id":"p","addresses":["/ip4/127.0.0.1/tcp/1"],"api":"http://127.0.0.1:2"}';
const soon = (): AbortSignal => AbortSignal.timeout(20_000);

describe('cli/node-process', () => {
  let dir: string;
  const started: NodeProcess[] = [];

  before(() => { dir = mkdtempSync(path.join(os.tmpdir(), 'meshnet-process-')); });
  afterEach(async () => { await Promise.all(started.splice(0).map((node) => node.stop())); });
  after(() => { rmSync(dir, { recursive: true }); });

  function node(source: string, launcher: readonly string[] = []): NodeProcess {
    const program = path.join(dir, `${started.length}.mjs`);
    writeFileSync(program, source);
    const made = new NodeProcess(['--lab'], program, launcher);
    started.push(made);
    return made;
  }

  it('follows the events that a node prints, whatever stands between them', async () => {
    const one = node(`
      console.log('a stray line');
      console.log('${LISTENING}');
      console.log('{"event":"shard","state":"serving","layers":[0,1],"verified":false}');
      setInterval(() => {}, 1000);
    `);
    await one.waitFor('listening', soon());
    assert.deepEqual(one.listening.addresses, ['/ip4/127.0.0.1/tcp/1']);
    await one.waitFor('serving', soon());
    assert.match(one.stderr, /a stray line/);
  });

  it('starts it by `up --json` with its arguments', async () => {
    const one = node('console.error(process.argv.slice(2).join(" ")); process.exit(3);');
    await assert.rejects(one.waitFor('listening', soon()), (err) => isMeshnetError(err, 'NODE_NOT_RUNNING') &&
      err.details['exitCode'] === 3 && err.message.includes('up --json --until-eof --lab'));
  });

  it('starts it with the flags that the command has when it is started by itself', async () => {
    const one = node('console.error(process.execArgv.join(" ")); process.exit(3);');
    await assert.rejects(one.waitFor('listening', soon()), (err) => isMeshnetError(err, 'NODE_NOT_RUNNING') &&
      err.message.endsWith(`: ${NODE_FLAGS.join(' ')}`));
    const command = path.join(import.meta.dirname, '..', '..', 'bin', 'meshnet.js');
    assert.equal(readFileSync(command, 'utf8').split('\n')[0], `#!/usr/bin/env -S node ${NODE_FLAGS.join(' ')}`);
  });

  it('starts it behind a launcher, which becomes the node', async () => {
    const one = node('console.error(process.env.SEEN, process.pid); process.exit(3);', ['env', 'SEEN=here']);
    const { pid } = one;
    await assert.rejects(one.waitFor('listening', soon()), (err) => isMeshnetError(err, 'NODE_NOT_RUNNING') &&
      err.message.includes(`here ${pid}`));
  });

  it('says whether a wait was too long or not wanted any more', async () => {
    const one = node('setInterval(() => {}, 1000);');
    await assert.rejects(one.waitFor('listening', AbortSignal.timeout(10)), (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED'));
    const gone = new AbortController();
    const waiting = one.waitFor('listening', gone.signal);
    gone.abort();
    await assert.rejects(waiting, (err) => isMeshnetError(err, 'CANCELLED'));
    assert.throws(() => one.listening, (err) => isMeshnetError(err, 'INTERNAL'));
  });

  it('stops it in order, and twice does no harm', async () => {
    const one = node(`
      process.on('SIGTERM', () => { console.log('{"event":"stopped"}'); process.exit(0); });
      console.log('${LISTENING}');
      setInterval(() => {}, 1000);
    `);
    await one.waitFor('listening', soon());
    await one.stop();
    await one.stop();
    await one.exited;
    assert.throws(() => process.kill(one.pid as number, 0));
  });
});
