import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { NodeProcess } from '../../src/cli/node-process.ts';
import { loadConfig } from '../../src/config.ts';
import { uniformCuts, type LayerRange } from '../../src/domain/shard.ts';
import { configuredModels } from '../../src/model/configured.ts';
import { UBATCH } from '../mesh/systems.ts';
import { prompts } from '../runner/prompts.ts';
import { stopAll } from '../systems/stop-all.ts';
import { Call, type Ask } from './call.ts';
import { healthOf, type Health } from './health.ts';
import { LoadShard } from './load-shard.ts';
import { familyOf, type NamedProcess } from './processes.ts';
import { until } from './until.ts';

const START_MS = 300_000;
/** From the last session's end. */
const REST_MS = 60_000;
const LOOK_EVERY_MS = 100;
/** Sessions rest for so long behind their answers, and are gone when somebody looks for what was left. */
const WARM_REST_MS = 2000;
const LOOPBACK = '/ip4/127.0.0.1/tcp/0';
const MODEL = 'bench';
/** Shows that there is a route. */
const FIRST = { tokens: 16, output: 2 };

/** Sessions at once, and positions of all of them together. */
export interface Room {
  readonly sequences: number;
  readonly cells: number;
}

/** One worker has the first half of the layers, and each tail the second. */
export interface MeshShape {
  readonly tails: number;
  readonly head: Room;
  readonly tail: Room;
  /** Of the gateway, as its configuration has it below `[api]`. */
  readonly api: Readonly<Record<string, number>>;
}

/** Real nodes on the loopback and a gateway that is asked over HTTP, each in a process of its own. */
export class LoadMesh {
  readonly #root: string;
  readonly #nodes: NodeProcess[] = [];
  readonly #shards: LoadShard[] = [];
  #gateway: NodeProcess | undefined;
  #engine = '';

  private constructor(root: string) {
    this.#root = root;
  }

  static async start(model: string, shape: MeshShape, signal: AbortSignal): Promise<LoadMesh> {
    const mesh = new LoadMesh(await mkdtemp(path.join(os.tmpdir(), 'meshnet-load-')));
    try {
      await mesh.#start(model, shape, AbortSignal.any([signal, AbortSignal.timeout(START_MS)]));
      return mesh;
    } catch (err) {
      await mesh.stop();
      throw err;
    }
  }

  get engine(): string {
    return this.#engine;
  }

  /** The head first. */
  get shards(): readonly LoadShard[] {
    return this.#shards;
  }

  get tails(): readonly LoadShard[] {
    return this.#shards.slice(1);
  }

  ask(ask: Omit<Ask, 'model'>, signal: AbortSignal): Call {
    return new Call(this.#api, { ...ask, model: MODEL }, signal);
  }

  async gateway(signal: AbortSignal): Promise<Health> {
    return await healthOf(this.#api, signal);
  }

  /** What all sessions hold: sequence ids at all stages, answers and waiting requests at the gateway. */
  async held(signal: AbortSignal): Promise<number> {
    const [{ answers, waiting }, stages] = await Promise.all([
      this.gateway(signal), Promise.all(this.#shards.map(({ worker }) => worker.held(signal))),
    ]);
    return answers + waiting + stages.reduce((sum, { sequences }) => sum + sequences, 0);
  }

  /** Of all nodes and what they have started, but for those of one shard. */
  async processes(without?: LoadShard): Promise<NamedProcess[]> {
    const roots = [{ name: 'gateway', pid: this.#gateway?.pid ?? 0 }, ...this.#shards.map(({ root }) => root)];
    const families = await Promise.all(roots.filter(({ pid }) => pid !== without?.root.pid).map(familyOf));
    return families.flat();
  }

  /**
   * Until all shards serve and nobody holds anything, and that for `steadyMs` on end.
   *
   * @throws {MeshnetError} DEADLINE_EXCEEDED
   */
  async atRest(signal: AbortSignal, { withinMs = REST_MS, steadyMs = 0 } = {}): Promise<void> {
    let since: number | undefined;
    await until('no session holds anything', async () => {
      since = await this.#isAtRest(signal) ? since ?? performance.now() : undefined;
      return since !== undefined && performance.now() - since >= steadyMs;
    }, { withinMs, everyMs: LOOK_EVERY_MS, signal });
  }

  async stop(): Promise<void> {
    for (const shard of this.#shards.splice(0)) {
      shard.close();
    }
    try {
      await stopAll(this.#nodes.splice(0));
    } finally {
      await rm(this.#root, { recursive: true, force: true });
    }
  }

  get #api(): string {
    return this.#gateway?.listening.api ?? '';
  }

  async #isAtRest(signal: AbortSignal): Promise<boolean> {
    const [{ answers, waiting }, free] = await Promise.all([
      this.gateway(signal), Promise.all(this.#shards.map((shard) => shard.isFree(signal))),
    ]);
    return answers === 0 && waiting === 0 && free.every(Boolean);
  }

  async #start(file: string, { tails, head, tail, api }: MeshShape, signal: AbortSignal): Promise<void> {
    const model = await configuredModels(loadConfig({ cacheDir: this.#cache })).resolve(file, { signal });
    const settings = path.join(this.#root, 'gateway.toml');
    const ofApi = Object.entries(api).map(([name, value]) => `${name} = ${value}`);
    await writeFile(settings, ['[api]', ...ofApi, '[warm]', `restMs = ${WARM_REST_MS}`, ''].join('\n'));
    this.#gateway = await this.#node('gateway', [
      '--config', settings, '--use', `${MODEL}=${Buffer.from(model.digest).toString('hex')}`,
    ], signal);
    const [first, second] = uniformCuts(model.manifest.nLayer, 2) as [LayerRange, LayerRange];
    await this.#shard('head', { file, layers: first, room: head, core: 0 }, signal);
    for (let n = 1; n <= tails; n++) {
      await this.#shard(tails === 1 ? 'tail' : `tail ${n}`, { file, layers: second, room: tail, core: 1 }, signal);
    }
    await Promise.all(this.#nodes.slice(1).map((node) => node.waitFor('serving', signal)));
    await until('every shard serves', async () => {
      return (await Promise.all(this.#shards.map((shard) => shard.serves(signal)))).every(Boolean);
    }, { withinMs: START_MS, everyMs: LOOK_EVERY_MS, signal });
    const classes = await Promise.all(this.#shards.map((shard) => shard.engineClass(signal)));
    this.#engine = [...new Set(classes)].join(', ');
    // The shards announce themselves a moment after they serve.
    const [prompt = []] = prompts('first', { sessions: 1, tokens: FIRST.tokens });
    await until('there is a route', async () => {
      return (await this.ask({ prompt, output: FIRST.output, client: 'first' }, signal).ended).whole;
    }, { withinMs: START_MS, everyMs: LOOK_EVERY_MS, signal });
    await this.atRest(signal);
  }

  async #shard(
    name: string, { file, layers, room, core }: { file: string; layers: LayerRange; room: Room; core: number }, signal: AbortSignal,
  ): Promise<void> {
    const node = await this.#node(name.replace(' ', '-'), [
      '--bootstrap', this.#gateway?.listening.addresses[0] ?? '', '--model', file, '--layers', `${layers.first}-${layers.last}`,
      '--worker-listen', '127.0.0.1:0', '--worker-threads', '1', '--worker-ubatch', String(UBATCH),
      '--worker-cells', String(room.cells), '--worker-sequences', String(room.sequences),
    ], signal);
    this.#shards.push(new LoadShard(name, node, core));
  }

  /** Resolves when it listens. */
  async #node(folder: string, args: readonly string[], signal: AbortSignal): Promise<NodeProcess> {
    const node = new NodeProcess([
      '--lab', '--cache-dir', this.#cache, '--data-dir', path.join(this.#root, folder), '--log-level', 'warn',
      '--listen', LOOPBACK, '--api-port', '0', ...args,
    ]);
    this.#nodes.push(node);
    await node.waitFor('listening', signal);
    return node;
  }

  get #cache(): string {
    return path.join(this.#root, 'cache');
  }
}
