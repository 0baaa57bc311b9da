import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { NODE_FLAGS, NodeProcess } from '../../src/cli/node-process.ts';
import { loadConfig } from '../../src/config.ts';
import { uniformCuts } from '../../src/domain/shard.ts';
import { MeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import { LineProgram, type AskOptions } from './line-program.ts';
import { pin, run } from './native.ts';
import { commandAt, confinedLauncherAt, listeningAt, type Place } from './place.ts';
import { stopAll } from './stop-all.ts';

const START_MS = 300_000;
const STATUS_MS = 30_000;
/** Of a whole job; the longest lane takes minutes. */
const JOB_MS = 1_800_000;
const GATEWAY = path.join(import.meta.dirname, 'mesh-gateway.ts');
const COMMAND = path.join(import.meta.dirname, '..', '..', 'bin', 'meshnet.js');

const GATEWAY_PORT = 4001;
const SHARD_PORT = 4002;

const Ready = z.object({ ready: z.literal(true), addresses: z.array(z.string()).min(1) });

const Failed = z.object({ error: z.string() });

const Answer = z.object({
  prefill_ms: z.number(),
  open_ms: z.number(),
  decode_wall_ms: z.number(),
  decode_tokens: z.int(),
  step_ms: z.array(z.number()),
  times_ms: z.array(z.array(z.number())),
  tokens: z.array(z.array(z.int())),
  paths: z.array(z.string()),
  stages: z.array(z.object({ queue_ms: z.number(), compute_ms: z.number(), hand_over_ms: z.number() })),
});
export type MeshAnswer = z.infer<typeof Answer>;

const AnswerBeside = z.object({ first_token_ms: z.number(), step_ms: z.array(z.number()), paths: z.array(z.string()) });
export type MeshAnswerBeside = z.infer<typeof AnswerBeside>;

const AnswerTwice = z.object({ first_token_ms: z.number(), cached: z.int(), paths: z.array(z.string()) });
export type MeshAnswerTwice = z.infer<typeof AnswerTwice>;

const Shard = z.object({
  engineClass: z.string(),
  workerPid: z.int().positive(),
  weightBytes: z.number(),
  kvBytes: z.number(),
  lanes: z.int(),
  ticks: z.number(),
  decoded: z.number(),
  traffic: z.object({ bytesIn: z.number(), bytesOut: z.number(), packetsIn: z.number(), packetsOut: z.number() }),
});
export type ShardNow = z.infer<typeof Shard>;

export interface MeshOptions {
  readonly model: string;
  /** One a stage; the gateway is at the first. */
  readonly places: readonly Place[];
  /** KV cells of each worker: positions of all sessions together. */
  readonly cells: number;
  readonly sessions: number;
  readonly ubatch: number;
  /** Of one session at most. @default the node's own */
  readonly positions?: number | undefined;
}

/** Real nodes, one process per shard with its worker, and a gateway as a line program; each where its place says. */
export class BenchMesh {
  readonly #root: string;
  readonly #places: readonly Place[];
  readonly #shards: NodeProcess[] = [];
  #gateway: LineProgram | undefined;
  #workerPids: number[] = [];

  private constructor(root: string, places: readonly Place[]) {
    this.#root = root;
    this.#places = places;
  }

  static async start(options: MeshOptions, signal: AbortSignal): Promise<BenchMesh> {
    const mesh = new BenchMesh(await mkdtemp(path.join(os.tmpdir(), 'meshnet-bench-')), options.places);
    try {
      await mesh.#start(options, AbortSignal.any([signal, AbortSignal.timeout(START_MS)]));
      return mesh;
    } catch (err) {
      await mesh.stop();
      throw err;
    }
  }

  get workerPids(): readonly number[] {
    return this.#workerPids;
  }

  /** Of each stage's processes: node and worker. */
  get hosts(): readonly (readonly number[])[] {
    return this.#shards.map(({ pid }, stage) => [pid ?? 0, this.#workerPids[stage] ?? 0]);
  }

  /** Of every process: gateway, nodes, workers. */
  get pids(): readonly number[] {
    return [this.#gateway?.pid ?? 0, ...this.#shards.map(({ pid }) => pid ?? 0), ...this.#workerPids];
  }

  /** One request of the line protocol. @throws {MeshnetError} REQUEST_FAILED, INTERNAL, DEADLINE_EXCEEDED, CANCELLED */
  async ask(request: object, signal: AbortSignal): Promise<MeshAnswer> {
    return Answer.parse(await this.#answer(request, signal));
  }

  /** A request with a late session, as `ask`. */
  async askBeside(request: object, signal: AbortSignal): Promise<MeshAnswerBeside> {
    return AnswerBeside.parse(await this.#answer(request, signal));
  }

  /** A conversation of two turns, as `ask`. */
  async askTwice(request: object, signal: AbortSignal): Promise<MeshAnswerTwice> {
    return AnswerTwice.parse(await this.#answer(request, signal));
  }

  /** What the node of a stage tells of its shard now; counters are at most some seconds old. */
  async shard(stage: number, signal: AbortSignal): Promise<ShardNow> {
    const place = this.#places[stage];
    if (place === undefined) {
      throw new MeshnetError('INTERNAL', `there is no stage ${stage}`);
    }
    const [command, args] = commandAt(place, [process.execPath, COMMAND, 'status', '--json', '--data-dir', this.#folder(stage)]);
    const { stdout } = await run(command, args, { timeout: STATUS_MS, signal });
    return z.object({ shard: Shard }).parse(JSON.parse(stdout)).shard;
  }

  async stop(): Promise<void> {
    try {
      await stopAll([...this.#shards, ...this.#gateway === undefined ? [] : [this.#gateway]]);
    } finally {
      await rm(this.#root, { recursive: true, force: true });
    }
  }

  async #start(options: MeshOptions, signal: AbortSignal): Promise<void> {
    const cacheDir = path.join(this.#root, 'cache');
    const model = await configuredModels(loadConfig({ cacheDir })).resolve(options.model, { signal });
    const [first] = this.#places as [Place];
    this.#gateway = new LineProgram(...commandAt(first, [
      process.execPath, ...NODE_FLAGS, GATEWAY, '--data-dir', path.join(this.#root, 'gateway'), '--cache-dir', cacheDir,
      ...options.positions === undefined ? [] : ['--positions', String(options.positions)],
      ...listeningAt(first, GATEWAY_PORT), '--digest', Buffer.from(model.digest).toString('hex'),
    ]));
    const { addresses } = Ready.parse(await this.#gateway.next({ timeoutMs: START_MS, signal }));
    const cuts = uniformCuts(model.manifest.nLayer, this.#places.length);
    for (const [stage, place] of this.#places.entries()) {
      const { first: from, last: to } = cuts[stage] as { first: number; last: number };
      this.#shards.push(new NodeProcess([
        '--lab', '--cache-dir', cacheDir, '--data-dir', this.#folder(stage), '--log-level', 'warn',
        ...listeningAt(place, SHARD_PORT), '--bootstrap', addresses[0] ?? '', '--api-port', '0',
        '--model', options.model, '--layers', `${from}-${to}`, '--worker-listen', `${place.address}:0`,
        '--worker-threads', '1', '--worker-cells', String(options.cells), '--worker-sequences', String(options.sessions),
        '--worker-ubatch', String(options.ubatch),
      ], COMMAND, confinedLauncherAt(place)));
    }
    await Promise.all(this.#shards.map((shard) => shard.waitFor('serving', signal)));
    for (const [stage, { core, pins }] of this.#places.entries()) {
      const { workerPid } = await this.shard(stage, signal);
      this.#workerPids.push(workerPid);
      if (pins === 'worker') {
        await pin(workerPid, core);
      }
    }
    await this.#untilRouted(signal);
  }

  /** The shards announce themselves in the DHT a moment after they serve; each look-up waits for them a while. */
  async #untilRouted(signal: AbortSignal): Promise<void> {
    const request = { prompts: [[1, 2, 3]], output: 2, sampling: null };
    for (;;) {
      const line = await this.#ask(request, { timeoutMs: START_MS, signal });
      const failed = Failed.safeParse(line);
      if (!failed.success) {
        return;
      }
      if (signal.aborted) {
        throw new MeshnetError('DEADLINE_EXCEEDED', `no route in time: ${failed.data.error}`);
      }
    }
  }

  async #answer(request: object, signal: AbortSignal): Promise<unknown> {
    const line = await this.#ask(request, { timeoutMs: JOB_MS, signal });
    const failed = Failed.safeParse(line);
    if (failed.success) {
      throw new MeshnetError('REQUEST_FAILED', `the gateway: ${failed.data.error}`);
    }
    return line;
  }

  async #ask(request: object, options: AskOptions): Promise<unknown> {
    if (this.#gateway === undefined) {
      throw new MeshnetError('INTERNAL', 'the gateway was not started');
    }
    return await this.#gateway.ask(JSON.stringify(request), options);
  }

  #folder(stage: number): string {
    return path.join(this.#root, `shard-${stage}`);
  }
}
