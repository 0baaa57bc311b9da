import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ApiClient } from '../../src/cli/api-client.ts';
import { NodeProcess } from '../../src/cli/node-process.ts';
import { loadConfig } from '../../src/config.ts';
import { uniformCuts } from '../../src/domain/shard.ts';
import type { Generation } from '../../src/gateway/backend.ts';
import { MeshnetNode } from '../../src/index.ts';
import { configuredModels } from '../../src/model/configured.ts';
import { pin } from './native.ts';

const START_MS = 300_000;

export interface MeshRun {
  /** From the request to the first token, the opening of the route included. */
  readonly ttftMs: number;
  /** Opening of the route alone. */
  readonly openMs: number;
  /** Time of each token after the first. */
  readonly decodeMs: number[];
  readonly paths: string[];
}

/** Real nodes on the loopback: one process per shard, its worker pinned to a core of its own, and the gateway in this process. */
export class BenchMesh {
  readonly #gateway: MeshnetNode;
  readonly #shards: NodeProcess[];
  readonly #root: string;
  readonly workerPids: number[];

  private constructor(gateway: MeshnetNode, shards: NodeProcess[], { root, workerPids }: { root: string; workerPids: number[] }) {
    this.#gateway = gateway;
    this.#shards = shards;
    this.#root = root;
    this.workerPids = workerPids;
  }

  static async start(file: string, stages: number): Promise<BenchMesh> {
    const root = await mkdtemp(path.join(os.tmpdir(), 'meshnet-bench-'));
    const signal = AbortSignal.timeout(START_MS);
    const cacheDir = path.join(root, 'cache');
    const common = { cacheDir, lab: true, listen: ['/ip4/127.0.0.1/tcp/0'], logLevel: 'warn' as const };
    const model = await configuredModels(loadConfig(common)).resolve(file, { signal });
    let addresses: string[] = [];
    const gateway = new MeshnetNode(loadConfig({
      ...common, dataDir: path.join(root, 'gateway'), dhtServer: true, api: { enabled: false },
      use: { bench: Buffer.from(model.digest).toString('hex') },
    }), { onEvent: (event) => { addresses = event.event === 'listening' ? event.addresses : addresses; } });
    await gateway.start({ signal });
    const shards = uniformCuts(model.manifest.nLayer, stages).map(({ first, last }, i) => new NodeProcess([
      '--lab', '--cache-dir', cacheDir, '--listen', '/ip4/127.0.0.1/tcp/0', '--log-level', 'warn', '--data-dir', path.join(root, `shard-${i}`),
      '--dht-server', '--bootstrap', addresses[0] ?? '', '--model', file, '--layers', `${first}-${last}`,
      '--worker-threads', '1', '--worker-listen', '127.0.0.1:0', '--api-port', '0',
    ]));
    const workerPids: number[] = [];
    for (const [i, shard] of shards.entries()) {
      await shard.waitFor('serving', signal);
      const { shard: status } = await new ApiClient(shard.listening.api ?? '').get<{ shard: { workerPid: number } }>('/health', signal);
      await pin(status.workerPid, i % os.availableParallelism());
      workerPids.push(status.workerPid);
    }
    const mesh = new BenchMesh(gateway, shards, { root, workerPids });
    await mesh.#untilRouted(signal);
    return mesh;
  }

  /** One session: a prompt of so many ids, then so many greedy tokens. */
  async run(nPrompt: number, nOutput: number): Promise<MeshRun> {
    const ids = Array.from({ length: nPrompt }, (_, i) => 100 + (i * 7919) % 31_000);
    const began = performance.now();
    const generation = await this.#generate(ids, nOutput, AbortSignal.timeout(START_MS));
    const openMs = performance.now() - began;
    const times: number[] = [];
    for await (const { ids: got } of generation) {
      times.push(...got.map(() => performance.now()));
    }
    return {
      ttftMs: (times[0] ?? began) - began,
      openMs,
      decodeMs: times.slice(1).map((time, i) => time - (times[i] as number)),
      paths: generation.route.stages.map(({ path: kind }) => kind),
    };
  }

  async stop(): Promise<void> {
    await Promise.all(this.#shards.map((shard) => shard.stop()));
    await this.#gateway.stop({ signal: AbortSignal.timeout(15_000) });
    await rm(this.#root, { recursive: true, force: true });
  }

  async #generate(ids: number[], maxTokens: number, signal: AbortSignal): Promise<Generation> {
    return await this.#gateway.generate({
      model: 'bench', ids, maxTokens, logprobs: -1, ignoreEnd: true,
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0, presencePenalty: 0, frequencyPenalty: 0, seed: 1n, logitBias: [] },
    }, { signal });
  }

  /** The shards announce themselves in the DHT a moment after they serve. */
  async #untilRouted(signal: AbortSignal): Promise<void> {
    for (;;) {
      try {
        await Array.fromAsync(await this.#generate([1, 2, 3], 2, signal));
        return;
      } catch (err) {
        if (signal.aborted) {
          throw err;
        }
      }
    }
  }
}
