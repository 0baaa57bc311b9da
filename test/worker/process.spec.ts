import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isMeshnetError, type MeshnetError } from '../../src/errors.ts';
import { WorkerProcess, type WorkerProcessInit } from '../../src/worker/process.ts';
import { type FakeModel, FakeWorkshop } from '../support/fake-model.ts';

describe('worker/process', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  const running: WorkerProcess[] = [];
  const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(20_000) });
  const digest = new Uint8Array(32).fill(7);

  after(() => workshop.remove());
  afterEach(async () => {
    await Promise.all(running.splice(0).map((worker) => worker.stop()));
  });

  function make(model: Partial<FakeModel>, init: Partial<WorkerProcessInit> = {}): WorkerProcess {
    const worker = new WorkerProcess({
      binary: workshop.binary,
      runtimeDir: join(workshop.folder, 'run'),
      model: workshop.model(model),
      layers: { first: 0, last: 6 },
      listen: '127.0.0.1:0',
      modelDigest: digest,
      reportIntervalMs: 20,
      backoff: { baseMs: 10, capMs: 50, maxFailures: 3 },
      ...init,
    });
    running.push(worker);
    return worker;
  }

  const isCode = (code: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === code;
  const failed = async (worker: WorkerProcess): Promise<MeshnetError> => {
    const [err] = (await once(worker, 'failed', soon())) as [MeshnetError];
    return err;
  };

  it('starts, tells the progress of loading, and is ready with a description and reports', async () => {
    const worker = make({ loadingAnswers: 2 });
    const progress: number[] = [];
    worker.on('progress', (part) => progress.push(part));
    worker.start();
    const report = once(worker, 'report', soon());
    const description = await worker.ready(soon());
    assert.equal(description.layerLast, 6);
    assert.equal(description.seamPort, 4321);
    assert.deepEqual(progress.map((part) => part.toFixed(1)), ['0.1', '0.2']);
    assert.equal((await report)[0].budget.sequencesFree, 8);
    assert.equal(worker.description, description);
  });

  it('keeps socket and token where only this user can reach them, and removes them at the end', async () => {
    const runtimeDir = join(workshop.folder, 'private');
    const worker = make({}, { runtimeDir });
    worker.start();
    await worker.ready(soon());
    const [folder] = readdirSync(runtimeDir);
    assert.equal(statSync(join(runtimeDir, folder as string)).mode & 0o777, 0o700);
    assert.equal(statSync(join(runtimeDir, folder as string, 'token')).mode & 0o777, 0o600);
    assert.equal(statSync(join(runtimeDir, folder as string, 'token')).size, 32);
    await worker.stop();
    assert.deepEqual(readdirSync(runtimeDir), []);
  });

  it('finds a short folder for the socket when the given one is too long for AF_UNIX', async () => {
    const worker = make({}, { runtimeDir: join(workshop.folder, 'x'.repeat(120)) });
    worker.start();
    await worker.ready(soon());
    assert.ok(Buffer.byteLength(worker.target?.socketPath ?? '') <= 107);
  });

  it('has a new token and a new socket in each boot', async () => {
    const worker = make({});
    worker.start();
    const { pid } = await worker.ready(soon());
    const { target } = worker;
    const lost = once(worker, 'lost', soon());
    process.kill(pid, 'SIGKILL');
    const [err] = await lost;
    assert.equal(err.code, 'WORKER_LOST');
    assert.equal(err.details.signal, 'SIGKILL');
    assert.throws(() => worker.client, isCode('WORKER_LOST'));
    const second = await worker.ready(soon());
    assert.notEqual(second.pid, pid);
    const again = (): typeof target => worker.target;
    assert.notEqual(again()?.socketPath, target?.socketPath);
    assert.notDeepEqual(again()?.token, target?.token);
  });

  it('gives up after so many boots without use', async () => {
    const worker = make({ exit: 3, stderr: 'out of luck' });
    let lost = 0;
    worker.on('lost', () => lost++);
    worker.start();
    const err = await failed(worker);
    assert.equal(err.code, 'WORKER_LOST');
    assert.equal(err.details['exitCode'], 3);
    assert.match(String(err.details['stderr']), /out of luck/);
    assert.equal(lost, 2);
    await assert.rejects(worker.ready(soon()), isCode('WORKER_LOST'));
    assert.throws(() => worker.client, isCode('WORKER_LOST'));
  });

  for (const [what, model, code] of [
    ['an exit with 65', { exit: 65, stderr: 'not a model' }, 'MODEL_CORRUPT'],
    ['an exit with 65 and a report', { exit: 65, stderr: '{"error":{"code":"RANGE_INVALID","message":"no"}}' }, 'RANGE_INVALID'],
    ['an exit with 2', { exit: 2 }, 'CONFIG_INVALID'],
    ['a description that says so', { failure: 'MODEL_CORRUPT' }, 'MODEL_CORRUPT'],
    ['an architecture without an adapter', { failure: 'NOT_CERTIFIED' }, 'NOT_CERTIFIED'],
  ] as const) {
    it(`does not start again after ${what}`, async () => {
      const worker = make(model);
      worker.on('lost', () => assert.fail('was started again'));
      worker.start();
      assert.equal((await failed(worker)).code, code);
      await assert.rejects(worker.ready(soon()), isCode(code));
    });
  }

  it('tries again when the machine had no room, and says so at the end', async () => {
    const worker = make({ exit: 70, stderr: '{"error":{"code":"NO_CAPACITY","message":"too little memory"}}' });
    const lost = once(worker, 'lost', soon());
    worker.start();
    const err = await failed(worker);
    assert.equal((await lost)[0].code, 'NO_CAPACITY');
    assert.equal(err.code, 'NO_CAPACITY');
    assert.equal(err.details['exitCode'], 70);
  });

  it('says that a program does not exist', async () => {
    const worker = make({}, { binary: join(workshop.folder, 'nothing') });
    worker.start();
    assert.equal((await failed(worker)).code, 'CONFIG_INVALID');
  });

  it('counts a silent worker as lost', async () => {
    const worker = make({ silent: true }, { silenceMs: 150 });
    worker.start();
    const [err] = await once(worker, 'lost', soon());
    assert.equal(err.code, 'WORKER_LOST');
    assert.deepEqual(err.details, { silenceMs: 150 });
  });

  it('counts a stopped worker as lost', async () => {
    const worker = make({}, { silenceMs: 2_000, stopTimeoutMs: 100 });
    worker.start();
    const { pid } = await worker.ready(soon());
    process.kill(pid, 'SIGSTOP');
    const [err] = await once(worker, 'lost', soon());
    assert.equal(err.code, 'WORKER_LOST');
  });

  it('gives up a load that takes too long', async () => {
    const worker = make({ loadingAnswers: 1_000 }, { loadTimeoutMs: 50, backoff: { maxFailures: 1 } });
    worker.start();
    assert.equal((await failed(worker)).code, 'DEADLINE_EXCEEDED');
  });

  it('kills what does not end by itself', async () => {
    const worker = make({ ignoreTerm: true }, { stopTimeoutMs: 100 });
    worker.start();
    const { pid } = await worker.ready(soon());
    await worker.stop();
    assert.throws(() => process.kill(pid, 0), { code: 'ESRCH' });
  });

  it('can be stopped while it loads, and started again', async () => {
    const worker = make({ loadingAnswers: 3 });
    worker.start();
    await once(worker, 'progress', soon());
    await worker.stop();
    worker.start();
    await worker.ready(soon());
  });

  it('withdraws a wait for it', async () => {
    const worker = make({ loadingAnswers: 1_000 });
    worker.start();
    const stop = new AbortController();
    const waiting = worker.ready({ signal: stop.signal });
    stop.abort();
    await assert.rejects(waiting, isCode('CANCELLED'));
    await assert.rejects(worker.ready({ signal: AbortSignal.timeout(1) }), isCode('DEADLINE_EXCEEDED'));
  });

  it('refuses a caller without the token', async () => {
    const { ControlClient } = await import('../../src/worker/control-client.ts');
    const worker = make({});
    worker.start();
    await worker.ready(soon());
    const stranger = new ControlClient({ socketPath: worker.target?.socketPath ?? '', token: new Uint8Array(32) });
    await assert.rejects(stranger.describe(soon()), isCode('INTERNAL'));
    stranger.close();
  });

  it('passes on what the worker refuses, with its details', async () => {
    const worker = make({ sequences: 0 });
    worker.start();
    await worker.ready(soon());
    const lane = { session: new Uint8Array(16), epoch: 1, stage: 0 };
    const ask = worker.client.admit({ lane, nStages: 1, positions: 8, modelDigest: digest }, soon());
    await assert.rejects(ask, (err: unknown) => {
      assert.ok(isMeshnetError(err, 'NO_CAPACITY'));
      assert.equal(err.details['retryAfterMs'], 1000);
      assert.equal(err.details['required'], '1');
      return true;
    });
  });
});
