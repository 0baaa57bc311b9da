import { toString as bytesToString } from 'uint8arrays/to-string';
import { configuredRange, type Config } from '../config.ts';
import type { AdvertisementRecord } from '../domain/advertisement.ts';
import { assertRangeInside, type LayerRange } from '../domain/shard.ts';
import { MeshnetError } from '../errors.ts';
import type { OpenModel } from '../model/models.ts';
import { LeaseServer } from '../net/admission-server.ts';
import { HeaderServer } from '../net/header-protocol.ts';
import { verify } from '../net/identity.ts';
import { Admission } from '../serve/admission.ts';
import { Advertiser } from '../serve/advertiser.ts';
import { Linker } from '../serve/linker.ts';
import { seamEndpoints } from '../serve/seam-endpoints.ts';
import { ShardService } from '../serve/shard-service.ts';
import { shardStatus, type ShardStatus } from '../serve/shard-status.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';
import { WorkerProcess } from '../worker/process.ts';
import { nativeOf, type NodeContext } from './context.ts';
import { eachPercent } from './events.ts';
import type { Mesh } from './mesh.ts';

/** In a lab everybody is there at once, so nobody waits for an announcement. */
const LAB_ANNOUNCE_MS = 1000;

/** The serving half of a node: one shard. */
export class Provider {
  readonly #shard: ShardService;
  readonly #admission: Admission;
  readonly #advertiser: Advertiser;

  constructor(shard: ShardService, admission: Admission, advertiser: Advertiser) {
    this.#shard = shard;
    this.#admission = admission;
    this.#advertiser = advertiser;
  }

  get isServing(): boolean {
    return this.#shard.state === 'serving';
  }

  get status(): ShardStatus {
    return shardStatus(this.#shard, this.#admission.atRest(this.#shard));
  }

  served(): Promise<AdvertisementRecord[]> {
    return this.#advertiser.localAdvertisements();
  }
}

/** @throws {MeshnetError} of the model or its source; RANGE_INVALID; CANCELLED */
export async function openConfigured(
  shard: NonNullable<Config['shard']>, { config, models, tell }: NodeContext, { signal }: AbortOptions,
): Promise<{ model: OpenModel; layers: LayerRange }> {
  const range = configuredRange(config);
  const progress = eachPercent(tell);
  const model = await models.resolve(shard.model, {
    signal, manifestPath: shard.manifest, range,
    onProgress: ({ phase, done, total }) => { progress(phase, total === null || total === 0 ? 0 : done / total); },
  });
  const { name, digest, manifest: { nLayer } } = model;
  const layers = range ?? { first: 0, last: nLayer };
  assertRangeInside(layers, nLayer);
  tell({ event: 'model', model: name, digest: bytesToString(digest, 'hex'), n_layer: nLayer });
  return { model, layers };
}

/**
 * Offers the header, loads the shard, takes sessions and advertises, in this order. Resolves when it is being loaded;
 * `onFailed` hears when it can never serve.
 */
export async function startProvider(
  { model, layers }: { model: OpenModel; layers: LayerRange }, mesh: Mesh,
  { context, onFailed }: { context: NodeContext; onFailed: (err: MeshnetError) => void },
): Promise<Provider> {
  await offerHeader(model, context);
  const shard = startShard(model, layers, { context, onFailed });
  const admission = await takeSessions(shard, mesh, context);
  return new Provider(shard, admission, await advertise(shard, mesh, { context, admission }));
}

async function offerHeader(model: OpenModel, { host, models }: NodeContext): Promise<void> {
  const header = await models.readHeader(model);
  const ours = (digest: Uint8Array): boolean => Buffer.compare(digest, model.digest) === 0;
  await new HeaderServer({ host }).serve({
    manifest: (digest) => ours(digest) ? model.manifestBytes : undefined,
    header: (digest) => ours(digest)
      ? { size: header.byteLength, read: async (offset, length) => header.subarray(offset, offset + length) }
      : undefined,
  });
}

function startShard(
  model: OpenModel, layers: LayerRange,
  { context: { config, log, parts, tell }, onFailed }: { context: NodeContext; onFailed: (err: MeshnetError) => void },
): ShardService {
  const { listen, noDirect, threads, cells, sequences, ubatch, kv, traceLogits } = config.worker;
  const worker = new WorkerProcess({
    ...nativeOf(config), model: model.path, layers, modelDigest: model.digest, listen: noDirect ? undefined : listen,
    threads, cells, sequences, ubatch, kv, traceLogits,
  });
  const shard = new ShardService({ worker, log }, { modelDigest: model.digest, nLayer: model.manifest.nLayer });
  shard.on('changed', (state) => {
    const { error } = shard;
    const told = error === undefined ? {} : { error: { code: error.code, message: error.message } };
    tell({ event: 'shard', state, layers: [layers.first, layers.last], verified: false, ...told });
    if (state === 'failed') {
      onFailed(error ?? new MeshnetError('NOT_SERVING'));
    }
  });
  const progress = eachPercent(tell);
  worker.on('progress', (share) => { progress('load', share); });
  shard.start();
  parts.add('shard', () => shard.stop());
  return shard;
}

async function takeSessions(
  shard: ShardService, { lanes, bridge, admissions }: Mesh,
  { config: { worker }, host, log, metrics, parts }: NodeContext,
): Promise<Admission> {
  const linker = new Linker({ bridge, verify }, { noDirect: worker.noDirect });
  const admission = new Admission({
    shards: [shard], lanes, linker, log, observer: metrics,
  }, { anyDtype: worker.anyDtype });
  admissions.serve(admission);
  await new LeaseServer({ host }).handle(admission);
  parts.add('admission', async () => {
    admissions.stop();
    await admission.stop();
  });
  return admission;
}

async function advertise(
  shard: ShardService, { directory, records }: Mesh,
  { context: { config: { worker, lab }, host, identity, log, parts }, admission }: { context: NodeContext; admission: Admission },
): Promise<Advertiser> {
  const advertiser = new Advertiser({
    shards: [shard], announcer: records, sign: (bytes) => identity.sign(bytes), atRest: (one) => admission.atRest(one), log,
  }, {
    peerId: host.peerId,
    addresses: () => host.addresses(),
    endpoints: (port) =>
      worker.endpoints.length > 0 ? worker.endpoints : seamEndpoints(worker.listen, host.addresses(), port),
    ...(lab ? { announceMs: LAB_ANNOUNCE_MS } : {}),
  });
  await directory.serve(() => advertiser.localAdvertisements());
  advertiser.start();
  parts.add('advertiser', () => advertiser.stop());
  return advertiser;
}
