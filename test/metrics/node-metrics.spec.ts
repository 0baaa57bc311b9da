import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import { ERROR_CODES, type ErrorCode } from '../../src/errors.ts';
import { OUTCOMES } from '../../src/gateway/observer.ts';
import { CATALOGUE, type MetricSpec } from '../../src/metrics/catalogue.ts';
import { NodeMetrics } from '../../src/metrics/node-metrics.ts';
import type { ShardStatus } from '../../src/serve/shard-status.ts';
import { Exposition } from '../support/exposition.ts';

const SHARD: ShardStatus = {
  state: 'serving', verified: false, progress: 1, architecture: 'llama', engineClass: 'any', layers: [0, 6], nLayer: 12, lanes: 3, resting: 0,
  cellsFree: 700, cellsUsed: 300, cellsTotal: 1000, sequencesUsed: 3, sequencesTotal: 16, weightBytes: 1, kvBytes: 1, seamPort: 1,
  decodeUs: 700, workerPid: 1, queueDepth: 5, batchSize: 2.5, tickUs: { decode: 1500, prefill: 40_000 },
  traffic: { bytesIn: 10, bytesOut: 20, packetsIn: 1, packetsOut: 2 }, ticks: 40, decoded: 100, prefilled: 64,
  refusals: { NO_CAPACITY: 4, SEQ_GAP: 1 },
};

const CODES = Object.keys(ERROR_CODES) as ErrorCode[];

describe('metrics/node-metrics', () => {
  let shard: ShardStatus | undefined;
  let metrics: NodeMetrics;

  beforeEach(() => {
    shard = undefined;
    metrics = new NodeMetrics({ shard: () => shard });
  });

  const exposed = async (): Promise<Exposition> => new Exposition((await metrics.exposition()).text);

  /** Everything that can be told, with every word that can be said. */
  function tellAll(): void {
    shard = { ...SHARD, refusals: Object.fromEntries(CODES.map((code) => [code, 1])) };
    for (const reason of CODES) {
      metrics.sessionRefused(reason);
      for (const opened of [false, true]) {
        metrics.requestBegan();
        if (opened) {
          metrics.requestOpened();
        }
        metrics.requestEnded({ outcome: opened ? 'failed' : 'refused', reason, opened });
      }
    }
    for (const outcome of ['answered', 'cancelled'] as const) {
      metrics.requestBegan();
      metrics.requestOpened();
      metrics.firstToken(300);
      metrics.moreTokens(1, 20);
      metrics.promptCached(48);
      metrics.step({ stages: Array.from({ length: LIMITS.stagesPerRoute }, () => ({ queueMs: 1, computeMs: 2, handoverMs: 3 })), networkMs: 4 });
      metrics.requestEnded({ outcome, opened: true });
    }
  }

  it('shows all of the catalogue and nothing else, from the start and after everything has happened', async () => {
    const wanted = Object.entries(CATALOGUE).map(([name, { type, help }]) => [name, { help, type }]);
    assert.deepEqual([...(await exposed()).families], wanted);
    tellAll();
    assert.deepEqual([...(await exposed()).families], wanted);
  });

  it('has only the labels and values of the catalogue', async () => {
    tellAll();
    const shown = await exposed();
    for (const sample of shown.samples) {
      const { labels: specs = {} }: MetricSpec = CATALOGUE[shown.familyOf(sample) as keyof typeof CATALOGUE];
      const { le, ...labels } = sample.labels;
      assert.equal(le !== undefined, sample.name.endsWith('_bucket'), sample.name);
      assert.deepEqual(Object.keys(labels).toSorted(), Object.keys(specs).toSorted(), sample.name);
      for (const [label, value] of Object.entries(labels)) {
        assert.ok(specs[label]?.values.includes(value), `${sample.name} ${label}="${value}"`);
      }
    }
  });

  it('counts the tokens that warm sessions held, and shows the sessions at rest as they are', async () => {
    let resting = 2;
    const gateway = new NodeMetrics({ shard: () => undefined, warm: () => resting });
    const shown = async (name: string): Promise<number> => new Exposition((await gateway.exposition()).text).value(name);
    gateway.promptCached(48);
    gateway.promptCached(0);
    gateway.promptCached(100);
    assert.equal(await shown('meshnet_cached_tokens_total'), 148);
    assert.equal(await shown('meshnet_warm_sessions'), 2);
    resting = 0;
    assert.equal(await shown('meshnet_warm_sessions'), 0);
    assert.equal((await exposed()).value('meshnet_warm_sessions'), 0);
  });

  it('says in which format it speaks', async () => {
    assert.equal((await metrics.exposition()).contentType, 'text/plain; version=0.0.4; charset=utf-8');
  });

  it('counts requests by how they ended, every outcome from the start', async () => {
    assert.deepEqual((await exposed()).samples.filter(({ name }) => name === 'meshnet_requests_total').map(({ labels, value }) =>
      [labels['outcome'], value]), OUTCOMES.map((outcome) => [outcome, 0]));
    metrics.requestBegan();
    metrics.requestEnded({ outcome: 'refused', reason: 'NO_ROUTE', opened: false });
    metrics.requestBegan();
    metrics.requestOpened();
    metrics.requestEnded({ outcome: 'failed', reason: 'WORKER_LOST', opened: true });
    metrics.sessionRefused('NO_CAPACITY');
    metrics.sessionRefused('NO_CAPACITY');
    const shown = await exposed();
    assert.equal(shown.value('meshnet_requests_total', { outcome: 'refused' }), 1);
    assert.equal(shown.value('meshnet_requests_total', { outcome: 'failed' }), 1);
    assert.equal(shown.value('meshnet_refusals_total', { by: 'gateway', reason: 'no_route' }), 1);
    assert.equal(shown.value('meshnet_refusals_total', { by: 'admission', reason: 'no_capacity' }), 2);
    assert.equal(shown.value('meshnet_failures_total', { reason: 'worker_lost' }), 1);
    assert.equal(shown.sum('meshnet_refusals_total'), 3);
  });

  it('knows who waits and who has a route', async () => {
    const now = async (): Promise<[number, number]> => {
      const shown = await exposed();
      return [shown.value('meshnet_queue_depth', { queue: 'requests' }), shown.value('meshnet_sessions_active', { role: 'gateway' })];
    };
    metrics.requestBegan();
    metrics.requestBegan();
    assert.deepEqual(await now(), [2, 0]);
    metrics.requestOpened();
    assert.deepEqual(await now(), [1, 1]);
    metrics.requestEnded({ outcome: 'cancelled', opened: false });
    assert.deepEqual(await now(), [0, 1]);
    metrics.requestEnded({ outcome: 'answered', opened: true });
    assert.deepEqual(await now(), [0, 0]);
  });

  it('observes times in seconds, one for each token', async () => {
    metrics.firstToken(300);
    metrics.moreTokens(1, 20);
    metrics.moreTokens(4, 40);
    const shown = await exposed();
    assert.equal(shown.value('meshnet_time_to_first_token_seconds_count'), 1);
    assert.equal(shown.value('meshnet_time_to_first_token_seconds_sum'), 0.3);
    assert.equal(shown.value('meshnet_time_to_first_token_seconds_bucket', { le: '0.25' }), 0);
    assert.equal(shown.value('meshnet_time_to_first_token_seconds_bucket', { le: '0.5' }), 1);
    assert.equal(shown.value('meshnet_time_per_output_token_seconds_count'), 5);
    assert.ok(Math.abs(shown.value('meshnet_time_per_output_token_seconds_sum') - 0.06) < 1e-9);
    assert.equal(shown.value('meshnet_time_per_output_token_seconds_bucket', { le: '0.01' }), 4);
  });

  it('keeps the parts of a step apart, and gives the network to the ring', async () => {
    metrics.step({ stages: [{ queueMs: 1, computeMs: 2, handoverMs: 3 }, { queueMs: 4, computeMs: 5, handoverMs: 6 }], networkMs: 7 });
    const shown = await exposed();
    const sums = shown.samples.filter(({ name }) => name === 'meshnet_seam_seconds_sum').map(({ labels, value }) =>
      [`${labels['stage']} ${labels['part']}`, value]);
    assert.deepEqual(Object.fromEntries(sums), {
      '0 queue': 0.001, '0 compute': 0.002, '0 handover': 0.003, '1 queue': 0.004, '1 compute': 0.005, '1 handover': 0.006,
      'ring network': 0.007,
    });
  });

  it('shows the shard as its worker reported it, and 0 without one', async () => {
    const gauges = async (): Promise<number[]> => {
      const shown = await exposed();
      return [
        shown.value('meshnet_sessions_active', { role: 'shard' }), shown.value('meshnet_queue_depth', { queue: 'engine' }),
        ...['kv_cells_used', 'kv_cells_capacity', 'sequence_ids_used', 'sequence_ids_capacity', 'batch_size', 'ticks_total'].map((name) =>
          shown.value(`meshnet_${name}`)),
        ...['decode', 'prefill'].flatMap((phase) =>
          ['tick_seconds', 'positions_total'].map((name) => shown.value(`meshnet_${name}`, { phase }))),
        ...['in', 'out'].flatMap((direction) =>
          ['seam_bytes_total', 'seam_packets_total'].map((name) => shown.value(`meshnet_${name}`, { direction }))),
        ...['no_capacity', 'seq_gap'].map((reason) => shown.value('meshnet_worker_refusals_total', { reason })),
      ];
    };
    const before = await gauges();
    assert.deepEqual(before, before.map(() => 0));
    shard = SHARD;
    const wanted = [3, 5, 300, 1000, 3, 16, 2.5, 40, 0.0015, 100, 0.04, 64, 10, 1, 20, 2, 4, 1];
    assert.deepEqual(await gauges(), wanted);
    assert.deepEqual(await gauges(), wanted);
    // A worker that was started again.
    shard = { ...SHARD, ticks: 2, refusals: {} };
    const shown = await exposed();
    assert.equal(shown.value('meshnet_ticks_total'), 2);
    assert.equal(shown.sum('meshnet_worker_refusals_total'), 0);
  });

  it('sums itself up for people', async () => {
    assert.deepEqual(JSON.parse(JSON.stringify(await metrics.summary())), {
      requests: { answered: 0, refused: 0, failed: 0, cancelled: 0, waiting: 0, open: 0 }, refusals: {},
    });
    metrics.requestBegan();
    metrics.requestBegan();
    metrics.requestOpened();
    metrics.firstToken(100);
    metrics.moreTokens(1, 10);
    metrics.step({ stages: [{ queueMs: 1, computeMs: 4, handoverMs: 2 }], networkMs: 3 });
    metrics.sessionRefused('DRAINING');
    const { requests, firstToken, perToken, seam, refusals } = await metrics.summary();
    assert.deepEqual(requests, { answered: 0, refused: 0, failed: 0, cancelled: 0, waiting: 1, open: 1 });
    assert.ok(firstToken !== undefined && firstToken.p50 > 50 && firstToken.p95 <= 100);
    assert.ok(perToken !== undefined && perToken.p50 > 5 && perToken.p95 <= 10);
    assert.deepEqual(seam, { queue: 1, compute: 4, handover: 2, network: 3 });
    assert.deepEqual(refusals, { draining: 1 });
  });

  it('keeps two nodes of one process apart', async () => {
    const other = new NodeMetrics({ shard: () => SHARD });
    other.firstToken(1);
    assert.equal((await exposed()).value('meshnet_time_to_first_token_seconds_count'), 0);
  });
});
