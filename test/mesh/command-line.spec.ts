import assert from 'node:assert/strict';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CACHE, READY_MS, resolveModel } from './support/mesh.ts';
import { Command, lastJson, meshnet, processesOf, until, type Finished } from './support/processes.ts';

/** Programs that are started beside each other. */
const AT_ONCE = 3;
const MODEL_BYTES_KEPT = 20_000_000;

interface ErrorLine {
  readonly error: { readonly code: string; readonly message: string; readonly details: Record<string, unknown> };
}

describe('mesh/command-line', function () {
  this.timeout(READY_MS);
  let root = '';
  let taken: Server;

  before(async () => {
    root = mkdtempSync(join(tmpdir(), 'meshnet-command-line-'));
    const { path } = await resolveModel();
    copyFileSync(path, join(root, 'cut.gguf'));
    truncateSync(join(root, 'cut.gguf'), MODEL_BYTES_KEPT);
    writeFileSync(join(root, 'noise.gguf'), Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * 7919) % 256)));
    writeFileSync(join(root, 'empty.gguf'), '');
    writeFileSync(join(root, 'broken.toml'), 'listen = [\n');
    writeFileSync(join(root, 'typo.toml'), '[worker]\nthreds = 3\n');
    writeFileSync(join(root, 'no.manifest'), 'no manifest');
    taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
  });

  after(() => {
    taken.close();
    rmSync(root, { recursive: true, force: true });
  });

  const run = (args: readonly string[], env: Record<string, string> = {}): Promise<Finished> => meshnet(args, {
    env: { MESHNET_CACHE_DIR: CACHE, MESHNET_DATA_DIR: join(root, 'data'), MESHNET_LOG_LEVEL: 'warn', ...env },
  });
  const up = (...args: string[]): string[] => ['up', '--lab', '--listen', '/ip4/127.0.0.1/tcp/0', '--api-port', '0', '--json', ...args];
  const takenPort = (): string => String((taken.address() as AddressInfo).port);
  const inRoot = (name: string): string => join(root, name);

  /** Exit code, code of the error, and what its line has to name. */
  const faults: [string, number, string, RegExp, () => string[]][] = [
    ['a model file that is cut short', 1, 'MODEL_CORRUPT', /cut\.gguf.*behind the end of the file/, () => up('--model', inRoot('cut.gguf'))],
    ['a model file of noise', 1, 'MODEL_CORRUPT', /noise\.gguf.*magic/, () => up('--model', inRoot('noise.gguf'))],
    ['an empty model file', 1, 'MODEL_CORRUPT', /empty\.gguf/, () => up('--model', inRoot('empty.gguf'))],
    ['a model file that is not there', 1, 'SOURCE_UNAVAILABLE', /none\.gguf/, () => up('--model', inRoot('none.gguf'))],
    ['a model that nobody knows', 1, 'MODEL_UNKNOWN', /no-such-model/, () => up('--model', 'no-such-model')],
    ['a manifest that is none', 1, 'MALFORMED', /manifest/, () => up('--model', inRoot('cut.gguf'), '--manifest', inRoot('no.manifest'))],
    ['layers behind the model', 2, 'RANGE_INVALID', /4-12.*0-8/, () => up('--model', 'test', '--layers', '4-12')],
    ['no layers', 2, 'RANGE_INVALID', /5-5/, () => up('--model', 'test', '--layers', '5-5')],
    ['a configuration that is no TOML', 2, 'CONFIG_INVALID', /broken\.toml line 2/, () => up('--config', inRoot('broken.toml'))],
    ['an unknown setting', 2, 'CONFIG_INVALID', /threds/, () => up('--config', inRoot('typo.toml'))],
    ['a first contact that is no address', 2, 'CONFIG_INVALID', /bootstrap/, () => up('--bootstrap', 'hello')],
    ['an address that cannot be listened on', 2, 'CONFIG_INVALID', /hello/, () => up('--listen', 'hello')],
    ['a digest that is none', 2, 'CONFIG_INVALID', /64 hexadecimal/, () => up('--use', 'name=12')],
    ['an API for everybody without a key', 2, 'CONFIG_INVALID', /key/, () => up('--api-host', '0.0.0.0')],
    ['an API port that is taken', 1, 'ADDRESS_IN_USE', /port/, () => ['up', '--lab', '--listen', '/ip4/127.0.0.1/tcp/0', '--json', '--api-port', takenPort()]],
    ['a libp2p port that is taken', 1, 'ADDRESS_IN_USE', /libp2p/, () => ['up', '--lab', '--api-port', '0', '--json', '--listen', `/ip4/127.0.0.1/tcp/${takenPort()}`]],
    ['no node to ask', 1, 'NODE_NOT_RUNNING', /meshnet up/, () => ['chat', '-p', 'hello', '--json']],
    ['no node to show', 1, 'NODE_NOT_RUNNING', /meshnet up/, () => ['status', '--json']],
    ['no node at the address', 1, 'PEER_UNREACHABLE', /127\.0\.0\.1:1/, () => ['status', '--json', '--api', 'http://127.0.0.1:1']],
    ['nothing to pull', 1, 'MODEL_UNKNOWN', /no-such-model/, () => ['pull', 'no-such-model', '--json']],
  ];
  /** Each costs a start of the program and no more, so they run beside each other. */
  const outcomes = faults.map(() => Promise.withResolvers<Finished>());
  before(() => {
    const waiting = [...faults.entries()];
    const work = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const [i, [, , , , args]] = next;
        await run(args()).then(outcomes[i]?.resolve, outcomes[i]?.reject);
      }
    };
    for (let i = 0; i < AT_ONCE; i++) {
      void work();
    }
  });

  for (const [i, [name, exitCode, code, named]] of faults.entries()) {
    it(`says ${code} of ${name}`, async () => {
      const { code: found, stdout, stderr } = await (outcomes[i] as PromiseWithResolvers<Finished>).promise;
      assert.equal(found, exitCode, stderr);
      const { error } = lastJson(stdout) as ErrorLine;
      assert.equal(error.code, code);
      const lines = stderr.trimEnd().split('\n').filter((line) => line.startsWith('E_'));
      assert.equal(lines.length, 1, stderr);
      // What happened, where, and what next: at least two sentences.
      assert.match(lines[0] ?? '', new RegExp(`^E_${code}: .+\\. .+\\.$`));
      assert.match(lines[0] ?? '', named);
      assert.doesNotMatch(stderr, /\n\s+at /, 'no stack traces');
    });
  }

  it('says that the worker is missing when it has not been built', async () => {
    const { path } = await resolveModel();
    const { code, stdout, stderr } = await run(up('--model', path), { MESHNET_WORKER_BINARY: inRoot('no-worker') });
    assert.equal(code, 2, stderr);
    assert.equal((lastJson(stdout) as ErrorLine).error.code, 'CONFIG_INVALID');
    assert.match(stderr, /^E_CONFIG_INVALID: .*no-worker.*\. .+\.$/m);
  });

  it('explains itself for a wrong command, and lets nothing unknown pass', async () => {
    for (const args of [[], ['no-such-command'], ['up', '--no-such-flag'], ['up', '--layers', '0-4']]) {
      const { code, stdout, stderr } = await run(args);
      assert.equal(code, 2, args.join(' '));
      assert.equal(stdout, '');
      assert.match(stderr, /meshnet/);
    }
  });

  it('helps with every command', async () => {
    const commands = ['', 'up', 'demo', 'chat', 'status', 'pull'];
    const found = await Promise.all(commands.map((command) => run([...command.split(' ').filter(Boolean), '--help'])));
    for (const [i, { code, stdout, stderr }] of found.entries()) {
      assert.equal(code, 0, stderr);
      assert.match(stdout, new RegExp(`^meshnet ${commands[i] || 'COMMAND'}`));
    }
    assert.equal((await run(['--version'])).code, 0);
  });

  it('pulls a model and prints what it has as one line', async () => {
    const { code, stdout, stderr } = await run(['pull', 'test', '--json']);
    assert.equal(code, 0, stderr);
    const { path, digest } = await resolveModel();
    const found = lastJson(stdout) as Record<string, unknown>;
    assert.deepEqual([found.model, found.path, found.digest], ['test', path, Buffer.from(digest).toString('hex')]);
    assert.deepEqual([found.architecture, found.layers], ['llama', 8]);
  });

  for (const how of ['interrupt', 'terminate'] as const) {
    it(`ends in order when it is told to ${how} in the middle of the start`, async () => {
      const started = new Command(up('--model', 'test', '--data-dir', inRoot(`early-${how}`), '--cache-dir', CACHE));
      await until('it listens', () => /"listening"/.test(started.output) || undefined, READY_MS);
      started[how]();
      const { code, stderr } = await started.finished;
      assert.ok(code === 0 || code === 130, `${code}: ${stderr}`);
      await until('no worker is left', () => processesOf(root).length === 0 || undefined);
    });
  }
});
