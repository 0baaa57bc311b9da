/** Real nodes in processes of their own, with real workers, on the generated model. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NodeProcess } from '../../../src/cli/node-process.ts';
import { loadConfig } from '../../../src/config.ts';
import { configuredModels } from '../../../src/model/configured.ts';
import type { OpenModel } from '../../../src/model/models.ts';
import { processesOf, until } from './processes.ts';

/** Models are kept beside the build, so that only the first run makes them. */
export const CACHE = join(import.meta.dirname, '../../../native-worker/build/test-cache');
export const MODEL = 'test';
/** Layers of `MODEL`. */
export const LAYERS = 8;
/** Much more than any step needs on a busy machine. */
export const READY_MS = 120_000;

export interface Health {
  readonly status: string;
  readonly answers: number;
  readonly waiting: number;
  readonly node: { readonly peerId: string; readonly addresses: readonly string[] };
  readonly models: readonly { readonly id: string; readonly coverage: string }[];
  readonly shard?: {
    readonly state: string; readonly lanes: number; readonly cellsFree: number; readonly cellsTotal: number;
    readonly seamPort: number; readonly workerPid: number; readonly layers: readonly [number, number]; readonly engineClass: string;
    readonly error?: { readonly code: string; readonly message: string };
  };
}

export async function resolveModel(name: string = MODEL): Promise<OpenModel> {
  return await configuredModels(loadConfig({ cacheDir: CACHE }, undefined, {})).resolve(name, { signal: AbortSignal.timeout(240_000) });
}

export function digestOf(model: OpenModel): string {
  return Buffer.from(model.digest).toString('hex');
}

/** One test file's nodes, all below one folder. */
export class Mesh {
  readonly root: string;
  readonly #nodes: NodeProcess[] = [];

  constructor(name: string) {
    this.root = mkdtempSync(join(tmpdir(), `meshnet-${name}-`));
  }

  dataDir(name: string): string {
    return join(this.root, name);
  }

  /** Path of a configuration for that node, with these lines below `[api]`. */
  apiConfig(name: string, lines: string): string {
    const file = `${this.dataDir(name)}.toml`;
    writeFileSync(file, `[api]\n${lines}\n`);
    return file;
  }

  /** Resolves when it listens. The same name again is the same identity. Unless asked for, no session outlives its answer. */
  async node(name: string, args: readonly string[]): Promise<NodeProcess> {
    const node = new NodeProcess([
      '--lab', '--cache-dir', CACHE, '--data-dir', this.dataDir(name), '--log-level', 'warn',
      ...(args.includes('--listen') ? [] : ['--listen', '/ip4/127.0.0.1/tcp/0']),
      ...(args.includes('--warm-sessions') ? [] : ['--warm-sessions', '0']), '--api-port', '0', ...args,
    ]);
    this.#nodes.push(node);
    await node.waitFor('listening', AbortSignal.timeout(READY_MS));
    return node;
  }

  /** Without weights: where the others meet and clients ask. */
  async gateway(model: OpenModel, name = 'gateway', args: readonly string[] = []): Promise<NodeProcess> {
    return this.node(name, ['--use', `${MODEL}=${digestOf(model)}`, ...args]);
  }

  /** Resolves when it serves. */
  async shard(layers: string, bootstrap: NodeProcess, { name = `shard-${layers}`, args = [] }: { name?: string; args?: readonly string[] } = {}): Promise<NodeProcess> {
    const node = await this.node(name, [
      '--bootstrap', bootstrap.listening.addresses[0] ?? '', '--model', MODEL, '--layers', layers,
      '--worker-threads', '1', '--worker-listen', '127.0.0.1:0', ...(args.includes('--worker-cells') ? [] : ['--worker-cells', '4096']),
      ...args,
    ]);
    await node.waitFor('serving', AbortSignal.timeout(READY_MS));
    return node;
  }

  /** The model in two: head and tail. Resolves when the gateway knows them. */
  async halves(gateway: NodeProcess, args: readonly string[] = []): Promise<[head: NodeProcess, tail: NodeProcess]> {
    const halves = await Promise.all([this.shard('0-4', gateway, { args }), this.shard(`4-${LAYERS}`, gateway, { args })]);
    await covered(gateway);
    return halves;
  }

  /** No process of this mesh may be left, workers included. */
  async stop(): Promise<void> {
    await Promise.all(this.#nodes.splice(0).map((node) => node.stop()));
    await until(`all processes end: ${processesOf(this.root).join('; ')}`, () => processesOf(this.root).length === 0 || undefined, 15_000);
    rmSync(this.root, { recursive: true, force: true });
  }
}

export function apiOf(node: NodeProcess): string {
  return node.listening.api ?? '';
}

/** Of a node that cannot be reached: undefined. */
export async function healthOf(node: NodeProcess): Promise<Health | undefined> {
  try {
    const response = await fetch(`${apiOf(node)}/health`, { signal: AbortSignal.timeout(10_000) });
    return await response.json() as Health;
  } catch {
    return undefined;
  }
}

/** Until the gateway knows a shard for every layer. */
export async function covered(gateway: NodeProcess, id: string = MODEL): Promise<void> {
  await until(`${id} is covered`, async () => {
    return (await healthOf(gateway))?.models.some((model) => model.id === id && model.coverage === 'complete') === true || undefined;
  }, READY_MS);
}

/** Until no session holds anything on these shards. */
export async function idle(...shards: readonly NodeProcess[]): Promise<void> {
  for (const shard of shards) {
    await until('the shard has no lane', async () => {
      const status = (await healthOf(shard))?.shard;
      return (status?.state === 'serving' && status.lanes === 0 && status.cellsFree === status.cellsTotal) || undefined;
    });
  }
}
