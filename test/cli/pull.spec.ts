import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import yargs from 'yargs';
import { exitCodeOf } from '../../src/cli/output.ts';
import { createProgressView, formatBytes } from '../../src/cli/progress-view.ts';
import { createPullCommand } from '../../src/cli/pull.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import type { ProgressEvent } from '../../src/model/progress.ts';
import { FileServer } from '../model/file-server.ts';
import { buildGguf, smallModel } from '../model/gguf-builder.ts';

/** Keeps what is written to it. */
class Screen {
  text = '';
  readonly isTTY: boolean;
  constructor(isTTY = false) {
    this.isTTY = isTTY;
  }
  write(text: string | Uint8Array): boolean {
    this.text += String(text);
    return true;
  }
  get lines(): string[] {
    return this.text.split('\n').filter((line) => line !== '');
  }
}

describe('cli/pull', () => {
  const built = buildGguf(smallModel());
  let dir = '';
  let config = '';
  let server: FileServer;
  let stdout: Screen;
  let stderr: Screen;
  let stop: AbortController;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-pull-'));
    server = new FileServer(built.bytes);
    await server.start();
    config = join(dir, 'meshnet.toml');
    await writeFile(config, [
      '[models]', `baseUrl = "${server.base}"`, 'allowLoopback = true', '[models.names.small]', 'source = "base:small.gguf"',
    ].join('\n'));
    stdout = new Screen();
    stderr = new Screen();
    stop = new AbortController();
  });

  afterEach(async () => {
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  });

  async function run(...args: string[]): Promise<void> {
    const command = createPullCommand({ openModels: configuredModels, signal: () => stop.signal, stdout, stderr });
    await yargs(['pull', '--config', config, '--cache-dir', join(dir, 'cache'), ...args])
      .command(command).strict().exitProcess(false).fail(false).parseAsync();
  }

  it('says where the model is and by which digest others name it', async () => {
    await run('small');
    assert.match(stdout.text, /^small {2}llama, 4 layers, /);
    assert.match(stdout.text, /digest +[0-9a-f]{64}/);
    assert.ok(stderr.lines.every((line) => line.length <= 80));
    assert.match(stderr.lines.at(-1) ?? '', /^verify +100 %/);
  });

  it('writes lines of JSON and nothing else with --json', async () => {
    await run('small', '--json');
    const lines = stdout.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    for (const line of lines.slice(0, -1)) {
      assert.deepEqual(Object.keys(line).slice(0, 5), ['phase', 'done', 'total', 'rate', 'eta']);
    }
    const last = lines.at(-1) ?? {};
    assert.deepEqual(Object.keys(last), ['model', 'path', 'manifest', 'digest', 'sha256', 'bytes', 'architecture', 'layers']);
    assert.ok((await readFile(String(last['path']))).equals(built.bytes));
    assert.equal((await readFile(String(last['manifest']))).length > 0, true);
    assert.equal(stderr.text, '');
  });

  it('keeps the part when it is interrupted, and says how to go on', async () => {
    server.faults = [{ stallAfter: 1000 }];
    const interrupted = run('small', '--json');
    const watch = setInterval(() => {
      if (stdout.text.includes('"download"')) {
        stop.abort();
      }
    }, 5);
    try {
      await assert.rejects(interrupted, (err) => exitCodeOf(err) === 130 && isMeshnetError(err, 'CANCELLED'));
    } finally {
      clearInterval(watch);
    }
    assert.match(stderr.text, /run the same command again/);
    assert.ok((await readdir(join(dir, 'cache/models'))).some((name) => name.endsWith('.part')));
  });

  it('fails with the exit code of the error', async () => {
    await assert.rejects(run('nobody'), (err) => exitCodeOf(err) === 1 && isMeshnetError(err, 'MODEL_UNKNOWN'));
    await assert.rejects(run('pypi:broken'), (err) => exitCodeOf(err) === 2 && isMeshnetError(err, 'CONFIG_INVALID'));
    await assert.rejects(run());
    assert.equal(stdout.text, '');
  });
});

describe('cli/progress-view', () => {
  const event = (done: number, change: Partial<ProgressEvent> = {}): ProgressEvent =>
    ({ phase: 'download', done, total: 1000, rate: 100, eta: 9, ...change });

  it('writes a line each 10 % without a terminal', () => {
    const stderr = new Screen();
    const view = createProgressView({ stdout: new Screen(), stderr, json: false });
    for (let done = 0; done <= 1000; done++) {
      view.event(event(done));
    }
    assert.equal(stderr.lines.length, 11);
    assert.match(stderr.lines[5] ?? '', /^download +50 % {2}500 B\/1.0 kB {2}100 B\/s {2}9 s$/);
  });

  it('writes JSON at most twice a second, but every phase, notice and end', () => {
    const stdout = new Screen();
    let now = 0;
    const view = createProgressView({ stdout, stderr: new Screen(), json: true, now: () => now });
    for (let done = 1; done <= 100; done++) {
      now += 10;
      view.event(event(done));
    }
    assert.equal(stdout.lines.length, 2);
    view.event(event(100, { notice: { kind: 'stalled', attempt: 2, attempts: 5 } }));
    view.event(event(101, { phase: 'verify' }));
    view.event(event(1000, { phase: 'verify' }));
    assert.equal(stdout.lines.length, 5);
  });

  it('says when nothing moves', () => {
    const stderr = new Screen();
    const view = createProgressView({ stdout: new Screen(), stderr, json: false });
    view.event(event(1, { notice: { kind: 'stalled', attempt: 2, attempts: 5 } }));
    view.event(event(1, { notice: { kind: 'stalled' } }));
    view.event(event(1, { notice: { kind: 'waiting' } }));
    assert.deepEqual(stderr.lines.map((line) => line.replace(/^download +/, '')), [
      'stalled, retrying (2/5)', 'stalled', 'another process is fetching this model, waiting',
    ]);
  });

  it('draws a bar on a terminal', async () => {
    const stderr = new Terminal();
    const view = createProgressView({ stdout: new Screen(), stderr, json: false });
    view.event(event(0, { total: null }));
    view.event(event(500));
    view.event(event(1000, { phase: 'verify', eta: 0 }));
    view.stop();
    assert.match(stderr.text, /verify +█+ 100 %/);
  });

  it('writes sizes as disks are sold', () => {
    assert.deepEqual([0, 999, 1000, 98_362_432, 1.5e12].map(formatBytes), ['0 B', '999 B', '1.0 kB', '98.4 MB', '1.5 TB']);
  });
});

/** As much of a terminal as the bar asks for. */
class Terminal extends Screen {
  readonly columns = 80;
  constructor() {
    super(true);
  }
  on(): this { return this; }
  once(): this { return this; }
  removeListener(): this { return this; }
  cursorTo(): boolean { return true; }
  moveCursor(): boolean { return true; }
  clearLine(): boolean { return true; }
  clearScreenDown(): boolean { return true; }
}
