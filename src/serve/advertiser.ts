import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type AdvertisementRecord, type Sign, signAdvertisement } from '../domain/advertisement.ts';
import type { AtRest } from '../domain/capability.ts';
import { LIMITS } from '../domain/limits.ts';
import { toMeshnetError } from '../errors.ts';
import { Health } from '../proto/peer_pb.js';
import type { Description } from '../proto/worker_pb.js';
import type { AbortOptions } from '../worker/packet-duplex.ts';
import { type ServeLog, silentLog } from './log.ts';
import type { ShardService } from './shard-service.ts';

/** Says in the DHT that this node has shards of a model. */
export interface ModelAnnouncer {
  /** Gives how many peers took it. */
  provide(modelDigest: Uint8Array, options: AbortOptions): Promise<number>;
  withdraw(modelDigest: Uint8Array, options: AbortOptions): Promise<void>;
}

export interface AdvertiserComponents {
  readonly shards: readonly ShardService[];
  readonly announcer: ModelAnnouncer;
  readonly sign: Sign;
  /** What rests there. */
  readonly atRest: (shard: ShardService) => AtRest;
  readonly log?: ServeLog;
}

export interface AdvertiserInit {
  readonly peerId: string;
  /** Multiaddrs that others reach this node at. */
  readonly addresses: () => readonly string[];
  /** `host:port` that others reach a seam listener of this port at. */
  readonly endpoints: (seamPort: number) => readonly string[];
  /** How long an advertisement is valid. @default 300000 ms */
  readonly lifeMs?: number;
  /** An advertisement is signed anew when it is older. @default 1000 ms */
  readonly freshMs?: number;
  /** Between two announcements in the DHT. @default 3600000 ms */
  readonly announceMs?: number;
  /** After one that nobody took; it doubles up to a minute. @default 2000 ms */
  readonly announceRetryMs?: number;
  /** Unix ms. @default Date.now */
  readonly now?: () => number;
}

/** For one announcement. */
const ANNOUNCE_TIMEOUT_MS = 60_000;
const ANNOUNCE_RETRY_CAP_MS = 60_000;
const WITHDRAW_TIMEOUT_MS = 5_000;

/** What this node says of its shards that serve. It starts last and stops first. */
export class Advertiser {
  readonly #components: AdvertiserComponents;
  readonly #init: Required<AdvertiserInit>;
  readonly #log: ServeLog;
  readonly #signed = new Map<ShardService, { record: AdvertisementRecord; description: Description; atMs: number }>();
  /** By model digest. */
  readonly #announcing = new Map<string, AbortController>();
  readonly #loops = new Set<Promise<void>>();
  #running = false;
  #sequence = 0n;

  constructor(components: AdvertiserComponents, init: AdvertiserInit) {
    this.#components = components;
    this.#log = components.log ?? silentLog;
    this.#init = {
      lifeMs: 300_000,
      freshMs: 1_000,
      announceMs: 3_600_000,
      announceRetryMs: 2_000,
      now: Date.now,
      ...init,
    };
  }

  start(): void {
    this.#running = true;
    for (const shard of this.#components.shards) {
      shard.on('changed', this.#onChanged);
    }
    this.#onChanged();
  }

  /** Nothing is advertised any more; waits for announcements that are on their way. */
  async stop(): Promise<void> {
    this.#running = false;
    for (const shard of this.#components.shards) {
      shard.off('changed', this.#onChanged);
    }
    this.#onChanged();
    await Promise.all(this.#loops);
  }

  /** Signed, of the shards that serve at this moment, with their load. */
  async localAdvertisements(): Promise<AdvertisementRecord[]> {
    const records = await Promise.all(this.#serving().map((shard) => this.#recordOf(shard)));
    return records.filter((record) => record !== undefined);
  }

  #serving(): ShardService[] {
    return this.#running ? this.#components.shards.filter(({ state }) => state === 'serving') : [];
  }

  async #recordOf(shard: ShardService): Promise<AdvertisementRecord | undefined> {
    const { description } = shard;
    const nowMs = this.#init.now();
    const known = this.#signed.get(shard);
    if (known !== undefined && known.description === description && nowMs - known.atMs < this.#init.freshMs) {
      return known.record;
    }
    if (description === undefined) {
      return undefined;
    }
    const record = await this.#sign(shard, description, nowMs);
    // It may have been withdrawn meanwhile.
    if (shard.description !== description || !this.#running) {
      return undefined;
    }
    this.#signed.set(shard, { record, description, atMs: nowMs });
    return record;
  }

  #sign(shard: ShardService, description: Description, nowMs: number): Promise<AdvertisementRecord> {
    const { capability } = shard;
    const { sessions, positions } = this.#components.atRest(shard);
    const { layerFirst, layerLast, nLayer, engineClass, boundaryIn, boundaryOut, bootId } = description;
    const hasCertificate = shard.direct && description.certificate.byteLength > 0;
    return signAdvertisement({
      peerId: this.#init.peerId,
      modelDigest: shard.modelDigest,
      layerFirst,
      layerLast,
      nLayer,
      engineClass,
      boundaryIn,
      boundaryOut,
      bootId,
      sequence: ++this.#sequence,
      addresses: this.#init.addresses().slice(0, LIMITS.addressesPerAdvertisement),
      seamEndpoints: hasCertificate
        ? this.#init.endpoints(description.seamPort).slice(0, LIMITS.endpointsPerAdvertisement)
        : [],
      seamCertificateSha256: hasCertificate
        ? new Uint8Array(createHash('sha256').update(description.certificate).digest())
        : new Uint8Array(),
      decodeUs: capability?.decodeUs,
      prefillUs: capability?.prefillUs,
      lanes: capability?.lanes,
      sequencesFree: capability?.sequencesFree,
      cellsFree: capability?.cellsFree,
      lanesResting: sessions,
      cellsResting: positions,
      maxChunkTokens: capability?.maxChunkTokens,
      expiresAtMs: BigInt(nowMs + this.#init.lifeMs),
      // Until a peer has dialled back.
      health: Health.UNVERIFIED,
    }, this.#components.sign, nowMs);
  }

  readonly #onChanged = (): void => {
    const wanted = new Map(this.#serving().map(({ modelDigest }) => [Buffer.from(modelDigest).toString('hex'), modelDigest]));
    for (const [id, stop] of this.#announcing) {
      if (!wanted.has(id)) {
        stop.abort();
        this.#announcing.delete(id);
      }
    }
    for (const [id, modelDigest] of wanted) {
      if (!this.#announcing.has(id)) {
        const stop = new AbortController();
        this.#announcing.set(id, stop);
        const loop = this.#announce(modelDigest, stop.signal).finally(() => this.#loops.delete(loop));
        this.#loops.add(loop);
      }
    }
  };

  /** Until the signal. Never throws. */
  async #announce(modelDigest: Uint8Array, signal: AbortSignal): Promise<void> {
    let retryMs = this.#init.announceRetryMs;
    while (!signal.aborted) {
      let waitMs = retryMs;
      if (await this.#provide(modelDigest, signal) > 0) {
        waitMs = this.#init.announceMs;
        retryMs = this.#init.announceRetryMs;
      } else {
        retryMs = Math.min(retryMs * 2, ANNOUNCE_RETRY_CAP_MS);
      }
      await delay(waitMs, undefined, { signal, ref: false }).catch(() => undefined);
    }
    try {
      await this.#components.announcer.withdraw(modelDigest, { signal: AbortSignal.timeout(WITHDRAW_TIMEOUT_MS) });
    } catch (err) {
      this.#log.debug({ code: toMeshnetError(err).code }, 'a model could not be withdrawn');
    }
  }

  async #provide(modelDigest: Uint8Array, signal: AbortSignal): Promise<number> {
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(ANNOUNCE_TIMEOUT_MS)]);
      const taken = await this.#components.announcer.provide(modelDigest, { signal: limit });
      this.#log.debug({ taken }, 'a model was announced');
      return taken;
    } catch (err) {
      if (!signal.aborted) {
        this.#log.debug({ code: toMeshnetError(err).code }, 'a model could not be announced');
      }
      return 0;
    }
  }
}
