import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type { NodeProcess } from '../../src/cli/node-process.ts';
import { CATALOGUE, type MetricSpec } from '../../src/metrics/catalogue.ts';
import type { ActivitySummary } from '../../src/metrics/summary.ts';
import { Exposition } from '../support/exposition.ts';
import { DType, SeamEnd } from './spec-client/messages.ts';
import { ENDLESS, LONG, post, readAnswer, refusalOf } from './support/answer-stream.ts';
import { apiOf, idle, Mesh, READY_MS, resolveModel } from './support/mesh.ts';
import { lastJson, meshnet, until } from './support/processes.ts';
import { newLane, Stranger } from './support/stranger.ts';

const TOKENS = 16;

describe('mesh/metrics', function () {
  this.timeout(60_000);
  let mesh: Mesh;
  let gateway: NodeProcess;
  let head: NodeProcess;
  let tail: NodeProcess;

  before(async function () {
    this.timeout(2 * READY_MS);
    mesh = new Mesh('metrics');
    gateway = await mesh.gateway(await resolveModel());
    [head, tail] = await mesh.halves(gateway);
  });

  after(async function () {
    this.timeout(60_000);
    await mesh?.stop();
  });

  const textOf = async (node: NodeProcess): Promise<string> => {
    const response = await fetch(`${apiOf(node)}/metrics`, { signal: AbortSignal.timeout(10_000) });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    return await response.text();
  };
  const read = async (node: NodeProcess): Promise<Exposition> => new Exposition(await textOf(node));
  /** Until a node shows it; workers report once a second. */
  const shows = (node: NodeProcess, what: string, look: (shown: Exposition) => boolean): Promise<Exposition> => until(what, async () => {
    const shown = await read(node);
    return look(shown) ? shown : undefined;
  });

  it('counts one answer at the gateway: its outcome, each of its tokens, and where their time went', async () => {
    const before = await read(gateway);
    const { done, finish, route } = await readAnswer(await post(apiOf(gateway), { max_tokens: TOKENS, ...ENDLESS }));
    assert.deepEqual([done, finish, route.stages.length], [true, 'length', 2]);
    const after = await shows(gateway, 'the answer has ended', (shown) => shown.value('meshnet_requests_total', { outcome: 'answered' }) > 0);
    const grown = (name: string, labels: Record<string, string> = {}): number => after.value(name, labels) - before.value(name, labels);
    const sumGrown = (name: string): number => after.sum(name) - before.sum(name);

    assert.equal(grown('meshnet_requests_total', { outcome: 'answered' }), 1);
    assert.equal(sumGrown('meshnet_requests_total'), 1);
    assert.equal(sumGrown('meshnet_refusals_total') + sumGrown('meshnet_failures_total'), 0);
    assert.equal(grown('meshnet_time_to_first_token_seconds_count'), 1);
    assert.ok(grown('meshnet_time_to_first_token_seconds_sum') > 0);
    assert.equal(grown('meshnet_time_per_output_token_seconds_count'), TOKENS - 1);

    const parts = ['0', '1'].flatMap((stage) => ['queue', 'compute', 'handover'].map((part) => ({ stage, part })));
    for (const labels of [...parts, { stage: 'ring', part: 'network' }]) {
      assert.equal(grown('meshnet_seam_seconds_count', labels), TOKENS - 1, JSON.stringify(labels));
    }
    for (const stage of ['0', '1']) {
      assert.ok(grown('meshnet_seam_seconds_sum', { stage, part: 'compute' }) > 0);
    }
    assert.equal(sumGrown('meshnet_seam_seconds_count'), 7 * (TOKENS - 1));
    // The parts are the whole; tokens that come in bunches can only seem to have had more time.
    const whole = grown('meshnet_time_per_output_token_seconds_sum');
    assert.ok(sumGrown('meshnet_seam_seconds_sum') > whole - 0.001, `${sumGrown('meshnet_seam_seconds_sum')} s of ${whole} s`);
    // It has no shard.
    assert.deepEqual([after.value('meshnet_kv_cells_capacity'), after.value('meshnet_ticks_total')], [0, 0]);
  });

  it('counts the next answer at the shards, as their workers report it', async () => {
    const decoded = (shown: Exposition): number => shown.value('meshnet_positions_total', { phase: 'decode' });
    const prefilled = (shown: Exposition): number => shown.value('meshnet_positions_total', { phase: 'prefill' });
    /** The last token of an answer is drawn and never computed. */
    const answers = (count: number) => (shown: Exposition): boolean =>
      decoded(shown) === count * (TOKENS - 1) && shown.value('meshnet_sessions_active', { role: 'shard' }) === 0;
    const before = await Promise.all([head, tail].map((shard) => shows(shard, 'the first answer', answers(1))));
    assert.equal((await readAnswer(await post(apiOf(gateway), { max_tokens: TOKENS, ...ENDLESS }))).done, true);
    for (const [i, shard] of [head, tail].entries()) {
      const was = before[i] as Exposition;
      const is = await shows(shard, 'the second answer', answers(2));
      assert.equal(prefilled(is), 2 * prefilled(was));
      assert.ok(is.value('meshnet_ticks_total') - was.value('meshnet_ticks_total') >= TOKENS);
      for (const direction of ['in', 'out']) {
        for (const name of ['meshnet_seam_bytes_total', 'meshnet_seam_packets_total']) {
          assert.ok(is.value(name, { direction }) > was.value(name, { direction }), `${name} ${direction}`);
        }
      }
      assert.ok(is.value('meshnet_tick_seconds', { phase: 'decode' }) > 0);
      assert.ok(is.value('meshnet_tick_seconds', { phase: 'prefill' }) > 0);
      assert.equal(is.value('meshnet_batch_size'), 1);
      assert.deepEqual([is.value('meshnet_kv_cells_used'), is.value('meshnet_kv_cells_capacity')], [0, 4096]);
      assert.deepEqual([is.value('meshnet_sequence_ids_used'), is.value('meshnet_sequence_ids_capacity')], [0, 16]);
    }
  });

  it('shows a session and what it holds while it lasts, and that its client left', async () => {
    const cancelled = (shown: Exposition): number => shown.value('meshnet_requests_total', { outcome: 'cancelled' });
    const open = (shown: Exposition): number => shown.value('meshnet_sessions_active', { role: 'gateway' });
    const before = await read(gateway);
    const leaving = new AbortController();
    const response = await post(apiOf(gateway), LONG, leaving.signal);
    const left = assert.rejects(readAnswer(response));
    assert.equal(open(await read(gateway)), 1);
    await Promise.all([head, tail].map(async (shard) => {
      const shown = await shows(shard, 'the shard has a session', (each) => each.value('meshnet_sessions_active', { role: 'shard' }) === 1);
      assert.equal(shown.value('meshnet_sequence_ids_used'), 1);
      assert.ok(shown.value('meshnet_kv_cells_used') >= LONG.max_tokens);
    }));
    leaving.abort();
    await left;
    await shows(gateway, 'the client has left', (shown) => open(shown) === 0 && cancelled(shown) === cancelled(before) + 1);
    await idle(head, tail);
    await Promise.all([head, tail].map((shard) => shows(shard, 'the cells are free', (shown) => shown.value('meshnet_kv_cells_used') === 0)));
  });

  it('counts refusals by their reasons, at the gateway and at admission', async () => {
    const [unknown, wide] = [{ by: 'gateway', reason: 'model_unknown' }, { by: 'gateway', reason: 'context_length_exceeded' }];
    const before = await read(gateway);
    assert.equal((await refusalOf(await post(apiOf(gateway), { model: 'nobody' }))).status, 404);
    assert.equal((await refusalOf(await post(apiOf(gateway), { max_tokens: 5000 }))).status, 400);
    const after = await read(gateway);
    for (const labels of [unknown, wide]) {
      assert.equal(after.value('meshnet_refusals_total', labels) - before.value('meshnet_refusals_total', labels), 1, labels.reason);
    }
    const refused = { outcome: 'refused' };
    assert.equal(after.value('meshnet_requests_total', refused) - before.value('meshnet_requests_total', refused), 2);

    const stranger = await Stranger.of(head.listening.addresses[0] ?? '');
    try {
      const { code, leave } = await stranger.admit({
        version: 1, lane: newLane(0), nStages: 2, modelDigest: randomBytes(32), layerFirst: 0, layerLast: 4, positions: 64, deadlineMs: 5000,
        seams: [{ end: SeamEnd.ENTRY, peerId: stranger.peerId }, { end: SeamEnd.TO_NEXT, peerId: tail.listening.peer_id }],
        prefillDtype: DType.F32, decodeDtype: DType.F32,
      });
      assert.equal(code, 'MODEL_UNKNOWN');
      leave();
    } finally {
      await stranger.stop();
    }
    assert.equal((await read(head)).value('meshnet_refusals_total', { by: 'admission', reason: 'model_unknown' }), 1);
  });

  it('shows all of the catalogue and no label of its own, and names nobody', async () => {
    const wanted = Object.entries(CATALOGUE).map(([name, { type, help }]) => [name, { help, type }]);
    for (const node of [gateway, head, tail]) {
      const text = await textOf(node);
      const shown = new Exposition(text);
      assert.deepEqual([...shown.families], wanted);
      for (const sample of shown.samples) {
        const { labels: specs = {} }: MetricSpec = CATALOGUE[shown.familyOf(sample) as keyof typeof CATALOGUE];
        for (const [label, value] of Object.entries(sample.labels).filter(([label]) => label !== 'le')) {
          assert.ok(specs[label]?.values.includes(value), `${sample.name} ${label}="${value}"`);
        }
      }
      for (const { listening } of [gateway, head, tail]) {
        assert.ok(!text.includes(listening.peer_id), listening.peer_id);
      }
    }
  });

  it('is summed up by status, for people and for programs', async () => {
    const run = (name: string, ...args: string[]): ReturnType<typeof meshnet> =>
      meshnet(['status', ...args], { env: { MESHNET_DATA_DIR: mesh.dataDir(name) } });
    const asked = await run('gateway');
    assert.equal(asked.code, 0, asked.stderr);
    assert.match(asked.stdout, / Requests {2}2 answered {2}2 refused {2}0 failed {2}1 cancelled\n/);
    assert.match(asked.stdout, / First {5}token after [\d.]+ m?s, /);
    assert.match(asked.stdout, / Of it {5}queue .* compute .* hand-over .* network /);
    assert.match(asked.stdout, / Refused {3}.*model_unknown 1/);
    const served = await run('shard-0-4');
    assert.match(served.stdout, /cells 0\/4096 {2}sequences 0\/16\n Work {6}queue \d+ {2}batch 1\.0 {2}tick /);
    const { activity } = lastJson((await run('gateway', '--json')).stdout) as { activity: ActivitySummary };
    assert.deepEqual(activity.requests, { answered: 2, refused: 2, failed: 0, cancelled: 1, waiting: 0, open: 0 });
    assert.ok((activity.perToken?.p50 ?? 0) > 0);
  });
});
