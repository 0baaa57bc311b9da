import assert from 'node:assert/strict';
import { once } from 'node:events';
import { isMeshnetError } from '../../src/errors.ts';
import type { ShardService, ShardState } from '../../src/serve/shard-service.ts';
import { FakeWorkshop } from '../support/fake-model.ts';
import { ServeRig, soon } from './rig.ts';

describe('serve/shard-service', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  let rig: ServeRig;
  const isCode = (code: string) => (err: unknown): boolean => isMeshnetError(err) && err.code === code;

  beforeEach(() => {
    rig = new ServeRig(workshop);
  });
  afterEach(() => rig.stop());
  after(() => workshop.remove());

  async function until(shard: ShardService, state: ShardState): Promise<void> {
    while (shard.state !== state) {
      await once(shard, 'changed', soon());
    }
  }

  it('goes from joining over loading and verifying to serving, and back to joining', async () => {
    const shard = rig.shard(0, 6, { loadingAnswers: 2 });
    const states: ShardState[] = [shard.state];
    shard.on('changed', (state) => states.push(state));
    shard.start();
    await shard.serving(soon());
    assert.equal(shard.capability?.decodeUs, 700);
    assert.equal(shard.capability?.prefillUs, 100);
    assert.equal(shard.capability?.maxPositions, 1024);
    assert.equal(shard.direct, true);
    await once(shard.worker, 'report', soon());
    assert.equal(shard.capability?.cellsFree, 1000);
    await shard.stop();
    assert.deepEqual(states, ['joining', 'loading', 'verifying', 'serving', 'draining', 'joining']);
    assert.equal(shard.description, undefined);
  });

  it('serves no longer when its worker dies, and again with the next boot', async () => {
    const shard = rig.shard(0, 6);
    shard.start();
    await shard.serving(soon());
    const lost = once(shard, 'lost', soon());
    process.kill(shard.description?.pid ?? assert.fail(), 'SIGKILL');
    assert.equal((await lost)[0].code, 'WORKER_LOST');
    assert.equal(shard.state, 'loading');
    assert.equal(shard.capability, undefined);
    assert.equal(shard.error?.code, 'WORKER_LOST');
    await shard.serving(soon());
    assert.equal(shard.error, undefined);
  });

  for (const [what, model, code] of [
    ['an architecture that nobody certified', { architecture: 'gemma2' }, 'NOT_CERTIFIED'],
    ['an engine that nobody certified', { engineClass: 'llama-00000000-00000000/cpu-1/kv-f16' }, 'NOT_CERTIFIED'],
    ['a probe that fails', { probeFails: true }, 'DECODE_FAILED'],
    ['a worker with other layers', { nLayer: 13 }, 'RANGE_MISMATCH'],
    ['a broken model', { exit: 65 }, 'MODEL_CORRUPT'],
  ] as const) {
    it(`stays dark with ${what}`, async () => {
      const shard = rig.shard(0, 6, model);
      shard.on('changed', (state) => assert.notEqual(state, 'serving'));
      shard.start();
      await assert.rejects(shard.serving(soon()), isCode(code));
      assert.equal(shard.state, 'failed');
      assert.equal(shard.error?.code, code);
    });
  }

  it('drains: the worker is told, and nothing brings it back to serving', async () => {
    const shard = rig.shard(0, 6);
    shard.start();
    await shard.serving(soon());
    await shard.drain(soon());
    assert.equal(shard.state, 'draining');
    process.kill(shard.worker.description?.pid ?? assert.fail(), 'SIGKILL');
    await once(shard.worker, 'ready', soon());
    assert.equal(shard.state, 'draining');
  });

  it('can be stopped while it loads, and started again', async () => {
    const shard = rig.shard(0, 6, { loadingAnswers: 3 });
    shard.start();
    await until(shard, 'loading');
    await shard.stop();
    assert.equal(shard.state, 'joining');
    shard.start();
    await shard.serving(soon());
  });

  it('gives up a wait for it', async () => {
    const shard = rig.shard(0, 6, { loadingAnswers: 1_000 });
    shard.start();
    await assert.rejects(shard.serving({ signal: AbortSignal.timeout(20) }), isCode('CANCELLED'));
  });
});
