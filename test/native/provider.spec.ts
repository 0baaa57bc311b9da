import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { create } from '@bufbuild/protobuf';
import { isMeshnetError, type MeshnetError } from '../../src/errors.ts';
import { AdmitSchema, LinkSchema, PathKind, SeamEnd } from '../../src/proto/peer_pb.js';
import { EntrySeam } from '../../src/route/entry-seam.ts';
import { Admission } from '../../src/serve/admission.ts';
import { Advertiser } from '../../src/serve/advertiser.ts';
import { IncomingSeams } from '../../src/serve/incoming-seams.ts';
import { LaneTable } from '../../src/serve/lanes.ts';
import { Linker } from '../../src/serve/linker.ts';
import { SeamDialer } from '../../src/serve/seam-dialer.ts';
import { ShardService } from '../../src/serve/shard-service.ts';
import { BridgeServer } from '../../src/worker/bridge-server.ts';
import { TextProcess } from '../../src/worker/text-process.ts';
import { WorkerProcess, type WorkerProcessInit } from '../../src/worker/process.ts';
import { Peers, SELF, TestLease } from '../serve/rig.ts';
import { generatedModel, program } from './support/programs.ts';

const MODEL_DIGEST = new Uint8Array(32).fill(3);
const LAYERS = 6;
const PROMPT = [1, 15, 300, 7, 9];

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A zombie waits for a parent that reaps it.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

describe('native/provider', () => {
  const folder = mkdtempSync(join(tmpdir(), 'meshnet-provider-'));
  const peers = new Peers();
  const within = (ms: number): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(ms) });
  let model: string;
  const cleanUp: (() => Promise<void>)[] = [];

  before(async function () {
    this.timeout(120_000);
    model = await generatedModel({ layers: LAYERS, type: 'f16', tied: 'no' });
  });
  after(() => rmSync(folder, { recursive: true, force: true }));
  afterEach(async () => {
    for (const stop of cleanUp.splice(0).toReversed()) {
      await stop();
    }
  });

  function workerOf(first: number, last: number, init: Partial<WorkerProcessInit> = {}): WorkerProcess {
    const worker = new WorkerProcess({
      binary: program('meshnet-worker'), runtimeDir: join(folder, 'run'), model, layers: { first, last },
      listen: '127.0.0.1:0', modelDigest: MODEL_DIGEST, threads: 1, cells: 512, sequences: 4, ubatch: 32,
      backoff: { baseMs: 10, maxFailures: 2 }, ...init,
    });
    cleanUp.push(() => worker.stop());
    return worker;
  }

  /** One node with a shard for each cut, and its own gateway. */
  async function node(cuts: readonly [number, number][], init: Partial<WorkerProcessInit> = {}) {
    const shards = cuts.map(([first, last]) =>
      new ShardService({ worker: workerOf(first, last, init) }, { modelDigest: MODEL_DIGEST, nLayer: LAYERS }));
    const lanes = new LaneTable();
    const incoming = new IncomingSeams({ lanes });
    const dialer = new SeamDialer({ remote: { dial: () => assert.fail('there is no other node') }, incoming }, { peerId: SELF });
    const bridge = new BridgeServer({ dialer }, { runtimeDir: join(folder, 'bridge') });
    const linker = new Linker({ bridge, verify: peers.verify });
    const admission = new Admission({ shards, lanes, linker });
    const advertiser = new Advertiser({
      shards, sign: peers.signAs(SELF), atRest: (shard) => admission.atRest(shard),
      announcer: { provide: async () => 1, withdraw: async () => undefined },
    }, { peerId: SELF, addresses: () => ['/ip4/127.0.0.1/tcp/1'], endpoints: (port) => [`127.0.0.1:${port}`] });
    await bridge.start();
    shards.forEach((shard) => shard.start());
    cleanUp.push(() => bridge.stop(), async () => void await Promise.all(shards.map((shard) => shard.stop())), () => admission.stop());
    await Promise.all(shards.map((shard) => shard.serving(within(60_000))));
    advertiser.start();
    cleanUp.push(() => advertiser.stop());
    return { shards, admission, advertiser, dialer, lanes, incoming };
  }

  type Node = Awaited<ReturnType<typeof node>>;

  /** A session of all shards, linked and opened. */
  async function open({ shards, admission, advertiser, dialer }: Node) {
    const session = new Uint8Array(randomBytes(16));
    const laneOf = (stage: number) => ({ session, epoch: 1, stage });
    const last = shards.length - 1;
    const ends = (stage: number): SeamEnd[] => [
      stage === 0 ? SeamEnd.ENTRY : SeamEnd.TO_PREVIOUS, ...(stage < last ? [SeamEnd.TO_NEXT] : []),
      ...(last >= 2 && (stage === 0 || stage === last) ? [SeamEnd.LOOP] : []),
    ];
    const leases: TestLease[] = [];
    const answers: Awaited<ReturnType<Admission['admit']>>[] = [];
    for (const [stage, { layers }] of shards.entries()) {
      const lease = new TestLease(SELF);
      answers.push(await admission.admit(create(AdmitSchema, {
        version: 1, lane: laneOf(stage), nStages: shards.length, modelDigest: MODEL_DIGEST, layerFirst: layers.first,
        layerLast: layers.last, positions: 128, seams: ends(stage).map((end) => ({ end, peerId: SELF })),
      }), lease));
      lease.admission = admission;
      leases.push(lease);
    }
    const ticketOf = (stage: number, end: SeamEnd): Uint8Array<ArrayBuffer> =>
      answers[stage]?.tickets?.find((ticket) => ticket.end === end)?.ticket as Uint8Array<ArrayBuffer>;
    const records = await advertiser.localAdvertisements();
    const link = async (at: number, end: SeamEnd, other: number, otherEnd: SeamEnd, dial: boolean) =>
      admission.link(create(LinkSchema, {
        end, advertisement: records[other]?.signed, seamCertificate: answers[other]?.seamCertificate as Uint8Array<ArrayBuffer>,
        ticket: ticketOf(other, otherEnd), dial, attempt: 1, deadlineMs: 10_000, peerLane: laneOf(other),
      }), leases[at] as TestLease);
    const paths: (PathKind | undefined)[] = [];
    const pairs = shards.slice(1).map((_, i) => [i, SeamEnd.TO_NEXT, i + 1, SeamEnd.TO_PREVIOUS] as const);
    for (const [at, end, other, otherEnd] of [...pairs, ...(last >= 2 ? [[last, SeamEnd.LOOP, 0, SeamEnd.LOOP] as const] : [])]) {
      await link(other, otherEnd, at, end, false);
      paths.push((await link(at, end, other, otherEnd, true)).path);
    }
    const packets = await dialer.dial({
      peerId: SELF, addresses: [], lane: laneOf(0), end: SeamEnd.ENTRY, ticket: ticketOf(0, SeamEnd.ENTRY),
    }, within(10_000));
    const entry = new EntrySeam(packets, { lane: laneOf(0), modelDigest: MODEL_DIGEST, positions: 128 });
    await entry.open(within(10_000));
    return { entry, leases, paths };
  }

  async function generate(entry: EntrySeam, maxTokens: number): Promise<number[]> {
    const tokens: number[] = [];
    for await (const frame of entry.turn({ turn: 1, start: 0, ids: PROMPT, maxTokens, logprobs: -1, ignoreEnd: true }, within(30_000))) {
      tokens.push(...frame.tokens);
    }
    return tokens;
  }

  async function close({ entry, leases }: Awaited<ReturnType<typeof open>>): Promise<void> {
    await entry.close(within(10_000));
    leases.forEach((lease) => lease.close('released'));
  }

  it('answers the same with one stage, with two directly linked, and with three over the bridge', async () => {
    const whole = await node([[0, 6]]);
    const one = await open(whole);
    const expected = await generate(one.entry, 12);
    assert.equal(expected.length, 12);
    await close(one);

    const halves = await node([[0, 3], [3, 6]]);
    const two = await open(halves);
    assert.deepEqual(two.paths, [PathKind.DIRECT_GRPC]);
    assert.deepEqual(await generate(two.entry, 12), expected);
    await close(two);

    const bridged = await node([[0, 2], [2, 4], [4, 6]], { listen: undefined });
    const three = await open(bridged);
    assert.deepEqual(three.paths, [PathKind.LOCAL, PathKind.LOCAL, PathKind.LOCAL]);
    assert.equal(bridged.incoming.size, 4);
    assert.deepEqual(await generate(three.entry, 12), expected);
    await close(three);
    assert.equal(bridged.lanes.size, 0);
  }).timeout(120_000);

  it('ends every session of a worker that was killed with WORKER_LOST, tells the other stage, and serves again', async () => {
    const halves = await node([[0, 3], [3, 6]]);
    const session = await open(halves);
    const [first, second] = session.leases;
    process.kill(halves.shards[1]?.description?.pid ?? assert.fail(), 'SIGKILL');
    assert.equal((await second?.ended.promise)?.code, 'WORKER_LOST');
    const told = await first?.ended.promise;
    assert.ok(told !== undefined, 'the head has lost its neighbour');
    await halves.shards[1]?.serving(within(60_000));
    const again = await open(halves);
    assert.equal((await generate(again.entry, 3)).length, 3);
    await close(again);
  }).timeout(60_000);

  it('gives cells and sequence ids back', async () => {
    const whole = await node([[0, 6]]);
    const before = await whole.shards[0]?.worker.client.describe(within(5_000));
    for (let i = 0; i < 6; i++) {
      const session = await open(whole);
      await generate(session.entry, 2);
      await close(session);
      await whole.admission.stop();
    }
    const after = await whole.shards[0]?.worker.client.describe(within(5_000));
    assert.deepEqual(after?.budget, before?.budget);
  }).timeout(60_000);

  for (const [what, make, code] of [
    ['a file that is cut short', (file: string) => truncateSync(file, Math.floor(statSync(file).size / 2)), 'MODEL_CORRUPT'],
    ['a file that is no GGUF', (file: string) => writeFileSync(file, 'nothing of the kind'), 'MODEL_CORRUPT'],
    ['no file', (file: string) => rmSync(file), 'MODEL_CORRUPT'],
  ] as const) {
    it(`gives one typed error for ${what}, and does not try again`, async () => {
      const file = join(folder, 'broken.gguf');
      copyFileSync(model, file);
      make(file);
      const worker = workerOf(0, 6, { model: file });
      worker.on('lost', (err) => assert.fail(`tried again after ${err.code}`));
      worker.start();
      const [err] = (await once(worker, 'failed', within(60_000))) as [MeshnetError];
      assert.equal(err.code, code);
    }).timeout(60_000);
  }

  it('gives RANGE_INVALID for layers that the model does not have', async () => {
    const worker = workerOf(4, 9);
    worker.on('lost', (err) => assert.fail(`tried again after ${err.code}`));
    worker.start();
    await assert.rejects(worker.ready(within(60_000)), (err) => isMeshnetError(err, 'RANGE_INVALID'));
  }).timeout(60_000);

  it('leaves no worker behind when its node is killed', async () => {
    const script = join(folder, 'node.ts');
    const source = join(import.meta.dirname, '../../src/worker/process.ts');
    const init = {
      binary: program('meshnet-worker'), runtimeDir: join(folder, 'orphan'), model, layers: { first: 0, last: 6 },
    };
    writeFileSync(script, [
      `import { WorkerProcess } from ${JSON.stringify(source)};`,
      `const worker = new WorkerProcess(${JSON.stringify(init)});`,
      'worker.on("ready", ({ pid }) => process.send(pid));',
      'worker.start();',
    ].join('\n'));
    const parent = fork(script, { stdio: 'ignore' });
    const [pid] = (await once(parent, 'message', within(30_000))) as [number];
    process.kill(pid, 0);
    parent.kill('SIGKILL');
    const deadline = performance.now() + 10_000;
    while (isRunning(pid)) {
      assert.ok(performance.now() < deadline, `worker ${pid} outlived its node`);
      await delay(20);
    }
  }).timeout(60_000);

  it('tokenises, renders and gives pieces, by the real text process', async () => {
    const text = new TextProcess({ binary: program('meshnet-worker'), runtimeDir: join(folder, 'run'), model });
    text.start();
    cleanUp.push(() => text.stop());
    const { nVocab } = await text.ready(within(30_000));
    assert.ok(nVocab > 1000);
    const ids = await text.tokenize('Hello, world', within(5_000));
    const pieces = await text.pieces(ids, within(5_000));
    assert.match(Buffer.concat(pieces).toString(), /Hello, world/);
    assert.match(await text.grammarFromSchema('{"type":"object"}', within(5_000)), /root ::=/);
    await assert.rejects(text.grammarFromSchema('{', within(5_000)), (err) => isMeshnetError(err));
    await assert.rejects(text.pieces([nVocab], within(5_000)), (err) => isMeshnetError(err, 'TOKEN_INVALID'));
  }).timeout(60_000);
});
