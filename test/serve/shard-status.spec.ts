import assert from 'node:assert/strict';
import { once } from 'node:events';
import { shardStatus } from '../../src/serve/shard-status.ts';
import { FakeWorkshop } from '../support/fake-model.ts';
import { ServeRig, soon } from './rig.ts';

describe('serve/shard-status', function () {
  // Programs start slowly on a busy machine.
  this.timeout(30_000);

  const workshop = new FakeWorkshop();
  let rig: ServeRig;

  beforeEach(() => { rig = new ServeRig(workshop); });
  afterEach(() => rig.stop());
  after(() => workshop.remove());

  it('shows a shard before it has a worker', () => {
    const status = shardStatus(rig.shard(0, 6), { sessions: 0 });
    assert.deepEqual([status.state, status.layers, status.nLayer, status.workerPid, status.cellsTotal],
      ['joining', [0, 6], 12, 0, 0]);
    assert.ok(!('error' in status));
    assert.deepEqual(status.traffic, { bytesIn: 0, bytesOut: 0, packetsIn: 0, packetsOut: 0 });
    assert.deepEqual([status.cellsUsed, status.sequencesUsed, status.queueDepth, status.refusals], [0, 0, 0, {}]);
  });

  it('shows what a serving shard holds, in what JSON can say, and no secrets', async () => {
    const shard = rig.shard(0, 6);
    shard.start();
    await shard.serving(soon());
    await once(shard.worker, 'report', soon());
    const status = JSON.parse(JSON.stringify(shardStatus(shard, { sessions: 2 }))) as ReturnType<typeof shardStatus>;
    assert.equal(status.state, 'serving');
    assert.equal(status.progress, 1);
    assert.deepEqual([status.cellsFree, status.resting], [1000, 2]);
    assert.equal(status.workerPid, shard.description?.pid);
    assert.equal(status.verified, false);
    assert.deepEqual(status.traffic, { bytesIn: 4096, bytesOut: 0, packetsIn: 3, packetsOut: 0 });
    assert.deepEqual([status.ticks, status.decoded, status.prefilled], [9, 2, 16]);
    assert.deepEqual([status.cellsUsed, status.cellsTotal, status.sequencesUsed, status.sequencesTotal], [24, 1024, 0, 8]);
    assert.deepEqual([status.queueDepth, status.batchSize, status.tickUs], [5, 2.5, { decode: 700, prefill: 9000 }]);
    assert.deepEqual(status.refusals, { NO_CAPACITY: 4, INTERNAL: 2 });
    assert.deepEqual(Object.keys(status).filter((key) => /key|token|ticket|certificate/i.test(key)), []);
  });

  it('says why a shard does not serve', async () => {
    const shard = rig.shard(0, 6, { architecture: 'gemma2' });
    shard.start();
    while (shard.state !== 'failed') {
      await once(shard, 'changed', soon());
    }
    assert.equal(shardStatus(shard, { sessions: 0 }).error?.code, 'NOT_CERTIFIED');
  });
});
