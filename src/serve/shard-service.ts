import { EventEmitter, once } from 'node:events';
import { type Capability, capabilityOf } from '../domain/capability.ts';
import { assertCertified } from '../domain/certificate.ts';
import { formatLayerRange, type LayerRange } from '../domain/shard.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import type { Description, LaneEnded, ProbeReply, Report } from '../proto/worker_pb.js';
import type { WorkerProcess } from '../worker/process.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';
import { type ServeLog, silentLog } from './log.ts';

/** `failed`: nothing more will come of it without a person; `error` says why. */
export type ShardState = 'joining' | 'loading' | 'verifying' | 'serving' | 'draining' | 'failed';

export interface ShardServiceComponents {
  readonly worker: WorkerProcess;
  readonly log?: ServeLog;
}

export interface ShardServiceInit {
  readonly modelDigest: Uint8Array;
  readonly nLayer: number;
  /** Positions of the synthetic chunk. @default 16 */
  readonly probeTokens?: number;
}

export interface ShardServiceEvents {
  changed: [ShardState];
  laneEnded: [LaneEnded];
  /** Every lane of the worker is gone. */
  lost: [MeshnetError];
}

/** What has to be there for `serving`. */
interface Evidence {
  readonly description: Description;
  readonly probe: ProbeReply;
}

/**
 * One served shard: a worker, and what is known of it. *Serving* means that this boot has loaded, is of a certified class
 * and that a synthetic bundle went through; anything else takes it back at once.
 */
export class ShardService extends EventEmitter<ShardServiceEvents> {
  readonly worker: WorkerProcess;
  readonly modelDigest: Uint8Array;
  readonly nLayer: number;
  readonly #probeTokens: number;
  readonly #log: ServeLog;
  #state: ShardState = 'joining';
  #error: MeshnetError | undefined;
  #progress = 0;
  #evidence: Evidence | undefined;
  #report: Report | undefined;
  #stop = new AbortController();

  constructor(components: ShardServiceComponents, init: ShardServiceInit) {
    super();
    this.worker = components.worker;
    this.#log = components.log ?? silentLog;
    this.modelDigest = init.modelDigest;
    this.nLayer = init.nLayer;
    this.#probeTokens = init.probeTokens ?? 16;
    this.worker.on('progress', (progress) => {
      this.#progress = progress;
      this.#become('loading');
    });
    this.worker.on('ready', (description) => void this.#verify(description));
    this.worker.on('report', (report) => {
      this.#report = report;
    });
    this.worker.on('laneEnded', (event) => this.emit('laneEnded', event));
    this.worker.on('lost', (err) => {
      this.#drop(err, 'loading');
      this.#log.warn({ ...this.facts, code: err.code, details: err.details }, `worker lost: ${err.message}`);
    });
    this.worker.on('failed', (err) => {
      this.#drop(err, 'failed');
      this.#log.warn({ ...this.facts, code: err.code, details: err.details }, `worker given up: ${err.message}`);
    });
  }

  get state(): ShardState {
    return this.#state;
  }

  get layers(): LayerRange {
    return this.worker.layers;
  }

  /** Why it does not serve. */
  get error(): MeshnetError | undefined {
    return this.#error;
  }

  /** Of loading, 0 to 1. */
  get progress(): number {
    return this.#state === 'joining' || this.#state === 'loading' ? this.#progress : 1;
  }

  /** Of the boot that serves; undefined in every other state. */
  get description(): Description | undefined {
    return this.#state === 'serving' ? this.#evidence?.description : undefined;
  }

  /** As `description`. */
  get capability(): Capability | undefined {
    if (this.#state !== 'serving' || this.#evidence === undefined) {
      return undefined;
    }
    return capabilityOf({ ...this.#evidence, probeTokens: this.#probeTokens, report: this.#report });
  }

  /** What its worker told last. */
  get report(): Report | undefined {
    return this.#report;
  }

  /** Whether its worker makes and takes direct connections. */
  get direct(): boolean {
    return (this.worker.description?.seamPort ?? 0) !== 0;
  }

  /** For log lines. */
  get facts(): { layers: string; state: ShardState } {
    return { layers: formatLayerRange(this.layers), state: this.#state };
  }

  start(): void {
    this.#stop = new AbortController();
    this.#error = undefined;
    this.#progress = 0;
    this.#become('loading');
    this.worker.start();
  }

  /** Takes no new sessions; those that it has go on. */
  async drain(options: AbortOptions): Promise<void> {
    const wasServing = this.#state === 'serving';
    this.#become('draining');
    if (wasServing) {
      await this.worker.client.drain(options);
    }
  }

  /** Ends every lane with the worker. */
  async stop(): Promise<void> {
    this.#become('draining');
    this.#stop.abort(new MeshnetError('CANCELLED', 'the shard is stopped'));
    await this.worker.stop();
    this.#evidence = undefined;
    this.#report = undefined;
    this.#become('joining');
  }

  /** Waits until it serves. @throws {MeshnetError} why it never will; CANCELLED, DEADLINE_EXCEEDED */
  async serving(options: AbortOptions): Promise<void> {
    while (this.#state !== 'serving') {
      if (this.#state === 'failed') {
        throw this.#error ?? new MeshnetError('NOT_SERVING');
      }
      try {
        await once(this, 'changed', { signal: options.signal });
      } catch (cause) {
        throw new MeshnetError('CANCELLED', 'waiting for a shard to serve was given up', { cause, details: this.facts });
      }
    }
  }

  async #verify(description: Description): Promise<void> {
    if (this.#state === 'draining') {
      return;
    }
    this.#become('verifying');
    try {
      this.#assertAsked(description);
      assertCertified(description);
      const probe = await this.worker.client.probe(this.#probeTokens, { signal: this.#stop.signal });
      if (this.#state !== 'verifying' || this.worker.description !== description) {
        return;
      }
      this.#evidence = { description, probe };
      this.#error = undefined;
      this.#become('serving');
      const { engineClass } = description;
      this.#log.info({ ...this.facts, engineClass, decodeUs: probe.decodeUs }, 'shard serves, unverified');
    } catch (err) {
      // A boot that died meanwhile has told so by itself, and the next one is verified anew.
      if (this.#state === 'verifying' && this.worker.description === description) {
        this.#drop(toMeshnetError(err), 'failed');
        const { code, message } = toMeshnetError(err);
        this.#log.warn({ ...this.facts, code }, `shard stays dark: ${message}`);
      }
    }
  }

  #assertAsked(description: Description): void {
    const { first, last } = this.layers;
    if (description.layerFirst !== first || description.layerLast !== last || description.nLayer !== this.nLayer) {
      throw new MeshnetError('RANGE_MISMATCH', 'the worker has loaded other layers than those that it was asked for', {
        details: { first: description.layerFirst, last: description.layerLast, nLayer: description.nLayer },
      });
    }
  }

  #drop(err: MeshnetError, next: ShardState): void {
    this.#evidence = undefined;
    this.#report = undefined;
    this.#error = err;
    this.#progress = 0;
    if (this.#state !== 'draining') {
      this.#become(next);
    }
    this.emit('lost', err);
  }

  #become(state: ShardState): void {
    if (this.#state !== state) {
      this.#state = state;
      this.emit('changed', state);
    }
  }
}
