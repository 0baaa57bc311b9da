import path from 'node:path';
import { pino, type Logger } from 'pino';
import { packagedBootstraps, TIMES, type Config } from './config.ts';
import { MeshnetError } from './errors.ts';
import type { AbortOptions, Generation, GenerationRequest, Health } from './gateway/backend.ts';
import { NodeMetrics } from './metrics/node-metrics.ts';
import { configuredModels } from './model/configured.ts';
import { Host } from './net/host.ts';
import { loadIdentity } from './net/identity.ts';
import { Consumer } from './node/consumer.ts';
import type { NodeContext } from './node/context.ts';
import type { NodeEvent, Tell } from './node/events.ts';
import { composeMesh, startSeams, type Mesh } from './node/mesh.ts';
import { StartedParts } from './node/parts.ts';
import { openConfigured, startProvider, type Provider } from './node/provider.ts';

export type { NodeEvent };

export interface MeshnetNodeInit {
  readonly onEvent?: Tell;
}

/**
 * One node: composes the parts (all that is made with `new` is made here and in `node/`), starts them in order and stops
 * them in reverse. Advertising starts last and stops first. The API starts before the model is loaded, and whatever the mesh
 * does.
 */
export class MeshnetNode {
  readonly #config: Config;
  readonly #tell: Tell;
  readonly #log: Logger;
  readonly #parts: StartedParts;
  readonly #failure = Promise.withResolvers<MeshnetError>();
  #since = 0;
  #consumer: Consumer | undefined;
  #provider: Provider | undefined;

  constructor(config: Config, init: MeshnetNodeInit = {}) {
    this.#config = config;
    this.#tell = init.onEvent ?? (() => undefined);
    this.#log = pino({ level: config.logLevel, base: undefined }, pino.destination({ dest: 2, sync: true }));
    this.#parts = new StartedParts({ log: this.#log });
  }

  /** Resolves when the node cannot go on; never rejects. */
  get failed(): Promise<MeshnetError> {
    return this.#failure.promise;
  }

  /**
   * One turn on a route of its own, without HTTP and text.
   *
   * @throws {MeshnetError} as `Backend.generate`
   */
  async generate(request: GenerationRequest, options: AbortOptions): Promise<Generation> {
    if (this.#consumer === undefined) {
      throw new MeshnetError('ALREADY_STOPPED', 'the node is not running');
    }
    return await this.#consumer.backend.generate(request, options);
  }

  /**
   * Resolves when the node listens, its API answers and its shard, if it has one, is being loaded.
   *
   * @throws {MeshnetError} of the configuration, the address or the model; `stop` cleans up
   */
  async start(options: AbortOptions): Promise<void> {
    this.#since = Date.now();
    const context = await this.#startHost(options);
    const { host } = context;
    const mesh = composeMesh(context);
    const consumer = new Consumer(context, mesh, {
      health: () => this.#health(host, consumer), served: async () => await this.#provider?.served() ?? [],
    });
    await consumer.start();
    this.#consumer = consumer;
    await startSeams(mesh, context);
    this.#tell({ event: 'listening', peer_id: host.peerId, addresses: host.addresses(), api: consumer.apiUrl });
    await this.#startProvider(mesh, context, { ...options, consumer });
  }

  /** In reverse order of the start, and within the signal. Never throws. */
  async stop(options: AbortOptions): Promise<void> {
    this.#consumer = undefined;
    await this.#parts.stop(options);
  }

  async #startHost(options: AbortOptions): Promise<NodeContext> {
    const { dataDir, listen, announce, bootstrap, lab } = this.#config;
    const identity = await loadIdentity(path.join(dataDir, 'identity.key'));
    const host = new Host({ identity, log: this.#log }, {
      listen, announce, bootstrap: bootstrap.length > 0 ? bootstrap : packagedBootstraps(), privateNetwork: lab,
      dht: dhtRole(this.#config),
    });
    this.#parts.add('libp2p host', () => host.stop({ timeoutMs: TIMES.stopMs }));
    await host.start(options);
    const models = configuredModels(this.#config);
    const metrics = new NodeMetrics({
      shard: () => this.#provider?.status, warm: () => this.#consumer?.warmSessions ?? 0,
    });
    return {
      config: this.#config, log: this.#log, metrics, models, identity, host, parts: this.#parts, tell: this.#tell,
    };
  }

  async #startProvider(
    mesh: Mesh, context: NodeContext, { consumer, signal }: AbortOptions & { consumer: Consumer },
  ): Promise<void> {
    const { shard } = this.#config;
    if (shard === undefined) {
      return;
    }
    const opened = await openConfigured(shard, context, { signal });
    const { name, digest, path: file } = opened.model;
    consumer.use(name, digest, file);
    const onFailed = (err: MeshnetError): void => { this.#failure.resolve(err); };
    this.#provider = await startProvider(opened, mesh, { context, onFailed });
  }

  #health(host: Host, consumer: Consumer): Health {
    const provider = this.#provider;
    const upSeconds = Math.floor((Date.now() - this.#since) / 1000);
    return {
      ready: provider?.isServing ?? this.#config.shard === undefined,
      details: {
        node: { peerId: host.peerId, addresses: host.addresses(), peers: host.peerCount, upSeconds },
        ...(provider === undefined ? {} : { shard: provider.status }),
        models: consumer.models,
      },
    };
  }
}

/** In a lab no public address will ever say that a node can be reached, and nobody would find anything. */
function dhtRole({ lab, dhtServer = lab ? true : undefined }: Config): 'auto' | 'client' | 'server' {
  return dhtServer === undefined ? 'auto' : dhtServer ? 'server' : 'client';
}
