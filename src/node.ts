import path from 'node:path';
import { toString as bytesToString } from 'uint8arrays/to-string';
import { fromString as bytesFromString } from 'uint8arrays/from-string';
import { pino, type Logger } from 'pino';
import { configuredRange, packagedBootstraps, TIMES, type Config } from './config.ts';
import type { LayerRange } from './domain/shard.ts';
import { assertRangeInside } from './domain/shard.ts';
import { MeshnetError, toMeshnetError } from './errors.ts';
import type { AbortOptions, Generation, GenerationRequest, Health } from './gateway/backend.ts';
import { Gateway } from './gateway/gateway.ts';
import { MeshBackend } from './gateway/mesh-backend.ts';
import { UsedModel } from './gateway/used-model.ts';
import { configuredModels } from './model/configured.ts';
import type { Models, OpenModel } from './model/models.ts';
import type { IdentifiedModel } from './model/digest.ts';
import { LeaseClient } from './net/admission-client.ts';
import { LeaseServer } from './net/admission-server.ts';
import { Bridge } from './net/bridge-protocol.ts';
import { Directory } from './net/directory.ts';
import { HeaderClient } from './net/header-client.ts';
import { HeaderServer } from './net/header-protocol.ts';
import { Host } from './net/host.ts';
import { loadIdentity, verify, type Identity } from './net/identity.ts';
import type { PeerTarget } from './net/protocols.ts';
import { ProviderRecords } from './net/provider-records.ts';
import { Finder } from './route/finder.ts';
import { offerOf } from './route/offer.ts';
import { RouteOpener } from './route/opener.ts';
import { Router } from './route/router.ts';
import { Admission } from './serve/admission.ts';
import { Advertiser } from './serve/advertiser.ts';
import { IncomingSeams } from './serve/incoming-seams.ts';
import { LaneTable } from './serve/lanes.ts';
import { Linker } from './serve/linker.ts';
import { LocalAdmission } from './serve/local-admission.ts';
import { SeamDialer } from './serve/seam-dialer.ts';
import { seamEndpoints } from './serve/seam-endpoints.ts';
import { ShardService } from './serve/shard-service.ts';
import { shardStatus } from './serve/shard-status.ts';
import { BridgeServer } from './worker/bridge-server.ts';
import { WorkerProcess } from './worker/process.ts';
import { TextProcess } from './worker/text-process.ts';

/** What a person or a parent process is told of a node's life. */
export type NodeEvent =
  | { event: 'listening'; peer_id: string; addresses: string[]; api: string | undefined }
  | { event: 'progress'; phase: string; share: number }
  | { event: 'model'; model: string; digest: string; n_layer: number }
  | { event: 'shard'; state: string; layers: [number, number]; verified: boolean; error?: { code: string; message: string } };

export interface MeshnetNodeInit {
  readonly onEvent?: (event: NodeEvent) => void;
}

/** What carries seams and leases, whether or not this node serves itself. */
interface Serving {
  readonly lanes: LaneTable;
  readonly seams: Bridge;
  readonly incoming: IncomingSeams;
  readonly dialer: SeamDialer;
  readonly bridge: BridgeServer;
  readonly directory: Directory;
  readonly records: ProviderRecords;
  readonly admissions: LocalAdmission;
}

/** Once the model is known. */
interface Provider {
  readonly shard: ShardService;
  readonly advertiser: Advertiser;
}

const WORKER_BINARY = path.join(import.meta.dirname, '..', 'native-worker', 'build', 'bin', 'meshnet-worker');

/**
 * One node: composes the parts, starts them in order and stops them in reverse. Advertising starts last and stops first. The
 * API starts before the model is loaded, and whatever the mesh does.
 */
export class MeshnetNode {
  readonly #config: Config;
  readonly #tell: (event: NodeEvent) => void;
  readonly #log: Logger;
  readonly #models: Models;
  readonly #used: UsedModel[] = [];
  /** What has been started, the last one stopped first. */
  readonly #started: { what: string; stop: () => unknown }[] = [];
  readonly #failure = Promise.withResolvers<MeshnetError>();
  readonly #life = new AbortController();
  #since = 0;
  #identity: Identity | undefined;
  #host: Host | undefined;
  #backend: MeshBackend | undefined;
  #gateway: Gateway | undefined;
  #provider: Provider | undefined;

  constructor(config: Config, init: MeshnetNodeInit = {}) {
    this.#config = config;
    this.#tell = init.onEvent ?? (() => undefined);
    this.#log = pino({ level: config.logLevel, base: undefined }, pino.destination({ dest: 2, sync: true }));
    this.#models = configuredModels(config);
  }

  /** Resolves when the node cannot go on; never rejects. */
  get failed(): Promise<MeshnetError> {
    return this.#failure.promise;
  }

  get peerId(): string {
    return this.#host?.peerId ?? '';
  }

  /** Base URL of the API, or undefined without one. */
  get apiUrl(): string | undefined {
    return this.#gateway?.url;
  }

  /**
   * One turn on a route of its own, without HTTP and text.
   *
   * @throws {MeshnetError} as `Backend.generate`
   */
  async generate(request: GenerationRequest, options: AbortOptions): Promise<Generation> {
    if (this.#backend === undefined) {
      throw new MeshnetError('ALREADY_STOPPED', 'the node is not running');
    }
    return await this.#backend.generate(request, options);
  }

  /**
   * Resolves when the node listens, its API answers and its shard, if it has one, is being loaded.
   *
   * @throws {MeshnetError} of the configuration, the address or the model; `stop` cleans up
   */
  async start(options: AbortOptions): Promise<void> {
    this.#since = Date.now();
    const host = await this.#startHost(options);
    const serving = this.#composeServing(host);
    const router = this.#composeRouter(host, serving);
    await this.#startGateway(router, host, serving.records);
    await serving.bridge.start();
    this.#onStop('bridge', () => serving.bridge.stop());
    await serving.seams.handle((open, peerId) => serving.incoming.accept(open, peerId));
    this.#tell({ event: 'listening', peer_id: host.peerId, addresses: host.addresses(), api: this.apiUrl });
    const { shard } = this.#config;
    if (shard !== undefined) {
      await this.#startProvider(host, { ...serving, router }, options);
    }
  }

  /** In reverse order of the start. Never throws. */
  async stop(options: AbortOptions): Promise<void> {
    this.#life.abort(new MeshnetError('CANCELLED', 'the node stops'));
    for (let part = this.#started.pop(); part !== undefined; part = this.#started.pop()) {
      try {
        await part.stop();
      } catch (err) {
        this.#log.warn({ part: part.what, err }, 'a part did not stop in order');
      }
      if (options.signal.aborted) {
        this.#log.warn({ part: part.what }, 'stopping takes too long');
      }
    }
  }

  #onStop(what: string, stop: () => unknown): void {
    this.#started.push({ what, stop });
  }

  async #startHost(options: AbortOptions): Promise<Host> {
    const { dataDir, listen, announce, bootstrap, lab, dhtServer } = this.#config;
    this.#identity = await loadIdentity(path.join(dataDir, 'identity.key'));
    const host = new Host({ identity: this.#identity, log: this.#log }, {
      listen, announce, bootstrap: bootstrap.length > 0 ? bootstrap : packagedBootstraps(), privateNetwork: lab,
      dht: dhtServer === undefined ? 'auto' : dhtServer ? 'server' : 'client',
    });
    this.#host = host;
    this.#onStop('libp2p host', () => host.stop({ timeoutMs: TIMES.stopMs }));
    await host.start(options);
    return host;
  }

  #composeServing(host: Host): Serving {
    const lanes = new LaneTable();
    const incoming = new IncomingSeams({ lanes, log: this.#log });
    const seams = new Bridge({ host });
    const dialer = new SeamDialer({ remote: seams, incoming }, { peerId: host.peerId });
    const bridge = new BridgeServer({ dialer }, { runtimeDir: path.join(this.#config.dataDir, 'run') });
    const directory = new Directory({ host, log: this.#log });
    const records = new ProviderRecords({ host, log: this.#log });
    records.start();
    this.#onStop('provider records', () => { records.stop(); });
    const remote = new LeaseClient({ host });
    return { lanes, seams, incoming, dialer, bridge, directory, records, admissions: new LocalAdmission({ remote }, { peerId: host.peerId }) };
  }

  #composeRouter(host: Host, { directory, records, dialer, admissions }: Serving): Router {
    const finder = new Finder({
      providers: (modelDigest, { signal }) => records.findProviders(modelDigest, { signal }),
      offers: async (peer, modelDigest, { signal }) =>
        (await directory.get(peer, { modelDigest }, { signal })).map(offerOf),
      localOffers: async (modelDigest) => (await this.#provider?.advertiser.localAdvertisements() ?? [])
        .filter(({ advertisement }) => Buffer.compare(advertisement.modelDigest, modelDigest) === 0).map(offerOf),
    }, { lookupMs: TIMES.findProvidersMs, peerMs: TIMES.peerAnswerMs, evictMs: TIMES.evictMs });
    const opener = new RouteOpener({ admissions, bridge: dialer, peerId: host.peerId }, {
      answerMs: TIMES.peerAnswerMs, closeMs: TIMES.closeMs, idleMs: TIMES.turnIdleMs,
    });
    return new Router({ finder, opener }, { openMs: TIMES.routeOpenMs });
  }

  async #startGateway(router: Router, host: Host, records: ProviderRecords): Promise<void> {
    const { api, use } = this.#config;
    for (const [name, digest] of Object.entries(use)) {
      this.#use({ router, host, records }, { name, digest: bytesFromString(digest, 'hex') });
    }
    this.#onStop('text processes', () => Promise.all(this.#used.map((model) => model.stop())));
    const backend = new MeshBackend({ router, models: this.#used, health: () => this.#health() });
    this.#backend = backend;
    if (!api.enabled) {
      return;
    }
    const { host: address, port, key, allowedHosts, allowedOrigins } = api;
    const gateway = new Gateway({ backend, log: this.#log }, { host: address, port, key, allowedHosts, allowedOrigins });
    await gateway.start();
    this.#gateway = gateway;
    this.#onStop('gateway', () => gateway.stop());
  }

  #use({ router, host, records }: { router: Router; host: Host; records: ProviderRecords }, { name, digest, file }: { name: string; digest: Uint8Array; file?: string }): void {
    const { worker, dataDir, sessionPositions } = this.#config;
    const client = new HeaderClient({ host, log: this.#log });
    const holders = (modelDigest: Uint8Array, { signal }: AbortOptions): AsyncIterable<PeerTarget> => records.findProviders(modelDigest, { signal });
    const headers = {
      manifest: (modelDigest: Uint8Array, options: AbortOptions) => client.fetchManifest(holders(modelDigest, options), modelDigest, options),
      header: ({ digest: modelDigest, manifest }: IdentifiedModel, options: AbortOptions) => client.fetchHeader(holders(modelDigest, options), {
        modelDigest, headerSha256: manifest.headerSha256, headerBytes: manifest.headerBytes,
      }, options),
    };
    this.#used.push(new UsedModel({
      models: this.#models, router, headers,
      newText: (model) => new TextProcess({ binary: worker.binary ?? WORKER_BINARY, runtimeDir: path.join(dataDir, 'run'), model }),
    }, { name, digest, positions: sessionPositions, path: file, openMs: TIMES.headerFetchMs }));
  }

  async #startProvider(host: Host, parts: Serving & { router: Router }, { signal }: AbortOptions): Promise<void> {
    const wanted = this.#config.shard as NonNullable<Config['shard']>;
    const range = configuredRange(this.#config);
    const model = await this.#models.resolve(wanted.model, {
      signal, manifestPath: wanted.manifest, range,
      onProgress: ({ phase, done, total }) => this.#tell({ event: 'progress', phase, share: total === null || total === 0 ? 0 : done / total }),
    });
    const layers = range ?? { first: 0, last: model.manifest.nLayer };
    assertRangeInside(layers, model.manifest.nLayer);
    this.#tell({ event: 'model', model: model.name, digest: bytesToString(model.digest, 'hex'), n_layer: model.manifest.nLayer });
    const header = await this.#models.readHeader(model);
    const ours = (digest: Uint8Array): boolean => Buffer.compare(digest, model.digest) === 0;
    await new HeaderServer({ host }).serve({
      manifest: (digest) => ours(digest) ? model.manifestBytes : undefined,
      header: (digest) => ours(digest)
        ? { size: header.byteLength, read: async (offset, length) => header.subarray(offset, offset + length) }
        : undefined,
    });
    if (!this.#used.some(({ init }) => init.name === model.name)) {
      this.#use({ ...parts, host }, { name: model.name, digest: model.digest, file: model.path });
    }
    const shard = this.#startShard(model, layers);
    await this.#startAdvertising(host, { ...parts, shard });
  }

  #startShard(model: OpenModel, layers: LayerRange): ShardService {
    const { worker: options, dataDir } = this.#config;
    const worker = new WorkerProcess({
      binary: options.binary ?? WORKER_BINARY, runtimeDir: path.join(dataDir, 'run'), model: model.path, layers, modelDigest: model.digest,
      listen: options.noDirect ? undefined : options.listen, threads: options.threads, cells: options.cells,
      sequences: options.sequences, ubatch: options.ubatch, kv: options.kv, traceLogits: options.traceLogits,
    });
    const shard = new ShardService({ worker, log: this.#log }, { modelDigest: model.digest, nLayer: model.manifest.nLayer });
    shard.on('changed', (state) => {
      const { error } = shard;
      const told = error === undefined ? {} : { error: { code: error.code, message: error.message } };
      this.#tell({ event: 'shard', state, layers: [layers.first, layers.last], verified: false, ...told });
      if (state === 'failed') {
        this.#failure.resolve(toMeshnetError(error ?? new MeshnetError('NOT_SERVING')));
      }
    });
    worker.on('progress', (share) => { this.#tell({ event: 'progress', phase: 'load', share }); });
    shard.start();
    this.#onStop('shard', () => shard.stop());
    return shard;
  }

  async #startAdvertising(host: Host, { shard, lanes, bridge, directory, records, admissions }: Serving & { shard: ShardService }): Promise<void> {
    const { worker, lab } = this.#config;
    const linker = new Linker({ bridge, verify }, { noDirect: worker.noDirect });
    const admission = new Admission({ shards: [shard], lanes, linker, log: this.#log }, { anyDtype: worker.anyDtype });
    admissions.serve(admission);
    await new LeaseServer({ host }).handle(admission);
    this.#onStop('admission', async () => {
      admissions.stop();
      await admission.stop();
    });
    const identity = this.#identity as Identity;
    const advertiser = new Advertiser({ shards: [shard], announcer: records, sign: (bytes) => identity.sign(bytes), log: this.#log }, {
      peerId: host.peerId,
      addresses: () => host.addresses(),
      endpoints: (port) => worker.endpoints.length > 0 ? worker.endpoints : seamEndpoints(worker.listen, host.addresses(), port),
      ...(lab ? { announceMs: 1000 } : {}),
    });
    await directory.serve(() => advertiser.localAdvertisements());
    advertiser.start();
    this.#provider = { shard, advertiser };
    this.#onStop('advertiser', () => advertiser.stop());
  }

  #health(): Health {
    const host = this.#host;
    const provider = this.#provider;
    const models = this.#used.map((model) => model.card()).map(({ id, digest, coverage }) => ({ id, digest, coverage }));
    return {
      ready: provider === undefined ? true : provider.shard.state === 'serving',
      details: {
        node: {
          peerId: host?.peerId, addresses: host?.addresses() ?? [], peers: host?.peerCount ?? 0,
          upSeconds: Math.floor((Date.now() - this.#since) / 1000),
        },
        ...(provider === undefined ? {} : { shard: shardStatus(provider.shard) }),
        models,
      },
    };
  }
}
