import { EventEmitter, once } from 'node:events';
import type { LayerRange } from '../domain/shard.ts';
import { formatLayerRange } from '../domain/shard.ts';
import { fromWireError } from '../domain/wire-error.ts';
import { MeshnetError } from '../errors.ts';
import { type Description, type Event, type LaneEnded, type LogitsTrace, type Report, State } from '../proto/worker_pb.js';
import type { BackoffInit } from './backoff.ts';
import type { Child, ChildPaths } from './child.ts';
import { ControlClient } from './control-client.ts';
import { fromAbort } from './grpc-error.ts';
import type { GrpcTarget } from './grpc.ts';
import type { AbortOptions } from './packet-duplex.ts';
import { Supervisor } from './supervisor.ts';

export interface WorkerProcessInit {
  /** Absolute path of `meshnet-worker`. */
  readonly binary: string;
  /** Folder for sockets. */
  readonly runtimeDir: string;
  /** GGUF file. */
  readonly model: string;
  readonly layers: LayerRange;
  /** `host:port` of the seam listener; without it the worker has no network at all. */
  readonly listen?: string;
  readonly modelDigest?: Uint8Array;
  readonly threads?: number;
  /** KV cells of all sessions together. */
  readonly cells?: number;
  readonly sequences?: number;
  readonly ubatch?: number;
  readonly kv?: 'f16' | 'f32';
  readonly groupWaitUs?: number;
  /** Tests: one group on its way at a time, so that all stages run the same batches in the same order. */
  readonly lockstep?: boolean;
  /** Tests: digests of the logits on the control socket. */
  readonly traceLogits?: boolean;
  /** How often the worker reports. @default 1000 ms */
  readonly reportIntervalMs?: number;
  /** Without a report for so long it counts as lost. @default 15000 ms */
  readonly silenceMs?: number;
  /** From the spawn to the first answer. @default 30000 ms */
  readonly answerTimeoutMs?: number;
  /** From the first answer to loaded. @default 600000 ms */
  readonly loadTimeoutMs?: number;
  /** @default 5000 ms */
  readonly stopTimeoutMs?: number;
  readonly backoff?: BackoffInit;
  readonly env?: Readonly<Record<string, string>>;
}

/** How often the progress of loading is asked for; the end of loading is told without asking. */
const PROGRESS_INTERVAL_MS = 250;

export interface WorkerProcessEvents {
  /** 0 to 1. */
  progress: [number];
  /** Loaded: `client` and `description` are set. */
  ready: [Description];
  report: [Report];
  laneEnded: [LaneEnded];
  trace: [LogitsTrace];
  /** This boot is over, with all its lanes; another follows. */
  lost: [MeshnetError];
  /** No other boot follows. */
  failed: [MeshnetError];
}

/** One worker: a process for one shard, started again when it dies, until it is hopeless. */
export class WorkerProcess extends EventEmitter<WorkerProcessEvents> {
  readonly #init: WorkerProcessInit;
  readonly #supervisor: Supervisor;
  readonly #changes = new EventEmitter<{ changed: [] }>();
  #boot: { client: ControlClient; target: GrpcTarget; description: Description } | undefined;
  #failure: MeshnetError | undefined;

  constructor(init: WorkerProcessInit) {
    super();
    this.#init = init;
    this.#supervisor = new Supervisor({
      what: 'worker',
      child: {
        binary: init.binary,
        args: (paths) => workerArguments(init, paths),
        runtimeDir: init.runtimeDir,
        env: init.env,
        stopTimeoutMs: init.stopTimeoutMs,
      },
      backoff: init.backoff,
      live: (child, useful, signal) => this.#live(child, useful, signal),
      onLost: (err) => this.emit('lost', err),
      onFailed: (err) => {
        this.#failure = err;
        this.emit('failed', err);
      },
    });
  }

  get layers(): LayerRange {
    return this.#init.layers;
  }

  /** Of the boot that is loaded now. */
  get description(): Description | undefined {
    return this.#boot?.description;
  }

  get target(): GrpcTarget | undefined {
    return this.#boot?.target;
  }

  /** @throws {MeshnetError} WORKER_LOST while no boot is loaded, or what it failed with for good */
  get client(): ControlClient {
    if (this.#boot === undefined) {
      throw this.#failure ?? new MeshnetError('WORKER_LOST', 'the worker is not running');
    }
    return this.#boot.client;
  }

  start(): void {
    this.#failure = undefined;
    this.#supervisor.start();
  }

  /** Resolves when the process is gone. */
  stop(): Promise<void> {
    return this.#supervisor.stop();
  }

  /** Waits until a boot is loaded. @throws {MeshnetError} what it failed with for good; CANCELLED, DEADLINE_EXCEEDED */
  async ready(options: AbortOptions): Promise<Description> {
    if (this.#boot !== undefined) {
      return this.#boot.description;
    }
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    const settled = new AbortController();
    const signal = AbortSignal.any([options.signal, settled.signal]);
    try {
      return await Promise.race([
        once(this, 'ready', { signal }).then(([description]) => description as Description),
        once(this, 'failed', { signal }).then(([err]) => {
          throw err as MeshnetError;
        }),
      ]);
    } catch (err) {
      throw options.signal.aborted ? fromAbort(options.signal, 'loading the model') : err;
    } finally {
      settled.abort();
    }
  }

  async #live(child: Child, useful: () => void, signal: AbortSignal): Promise<void> {
    const client = new ControlClient(child.target);
    const over = new AbortController();
    try {
      await client.ready({ signal, timeoutMs: this.#init.answerTimeoutMs ?? 30_000 });
      const options = { signal: AbortSignal.any([signal, over.signal]) };
      await Promise.all([this.#load(child, client, useful, options), this.#watch(client, options)]);
    } finally {
      over.abort();
      client.close();
      this.#boot = undefined;
    }
  }

  /** Asks until the shard is loaded. */
  async #load(child: Child, client: ControlClient, useful: () => void, options: AbortOptions): Promise<void> {
    const deadline = performance.now() + (this.#init.loadTimeoutMs ?? 600_000);
    for (;;) {
      const description = await client.describe(options);
      if (description.state === State.FAILED) {
        throw failureOf(description);
      }
      if (description.state !== State.LOADING) {
        this.#boot = { client, target: child.target, description };
        useful();
        this.emit('ready', description);
        return;
      }
      if (performance.now() > deadline) {
        throw new MeshnetError('DEADLINE_EXCEEDED', 'the model was not loaded in time');
      }
      this.emit('progress', description.progress);
      const tick = AbortSignal.any([options.signal, AbortSignal.timeout(PROGRESS_INTERVAL_MS)]);
      await once(this.#changes, 'changed', { signal: tick }).catch(() => undefined);
    }
  }

  /** Passes events on until the call ends, which it does with the process; silence ends it too. */
  async #watch(client: ControlClient, options: AbortOptions): Promise<void> {
    const silence = new AbortController();
    const silenceMs = this.#init.silenceMs ?? 15_000;
    const timer = setTimeout(() => {
      // While it loads, its answers to Describe are the sign of life.
      if (this.#boot === undefined) {
        timer.refresh();
        return;
      }
      silence.abort(new MeshnetError('WORKER_LOST', `the worker was silent for ${silenceMs} ms`, { details: { silenceMs } }));
    }, silenceMs);
    try {
      const signal = AbortSignal.any([options.signal, silence.signal]);
      for await (const event of client.watch(this.#init.reportIntervalMs ?? 1_000, { signal })) {
        timer.refresh();
        this.#pass(event);
      }
    } finally {
      clearTimeout(timer);
    }
    throw new MeshnetError('WORKER_LOST', 'the worker ended its watch');
  }

  #pass({ kind }: Event): void {
    switch (kind.case) {
      case 'report':
        this.emit('report', kind.value);
        break;
      case 'laneEnded':
        this.emit('laneEnded', kind.value);
        break;
      case 'logitsTrace':
        this.emit('trace', kind.value);
        break;
      case 'stateChanged':
        this.#changes.emit('changed');
        if (kind.value.state === State.FAILED) {
          throw failureOf(kind.value);
        }
        break;
      case undefined:
        break;
    }
  }
}

function failureOf(description: Description): MeshnetError {
  return description.failure === undefined
    ? new MeshnetError('INTERNAL', 'the worker failed without a reason')
    : fromWireError(description.failure);
}

function workerArguments(init: WorkerProcessInit, paths: ChildPaths): string[] {
  const options: [string, string | number | undefined][] = [
    ['--model', init.model],
    ['--layers', formatLayerRange(init.layers)],
    ['--control', paths.socketPath],
    ['--token-file', paths.tokenFile],
    ['--listen', init.listen],
    ['--threads', init.threads],
    ['--cells', init.cells],
    ['--sequences', init.sequences],
    ['--ubatch', init.ubatch],
    ['--kv', init.kv],
    ['--model-digest', init.modelDigest && Buffer.from(init.modelDigest).toString('hex')],
    ['--group-wait-us', init.groupWaitUs],
    ['--parent-pid', process.pid],
  ];
  const args = options.flatMap(([name, value]) => (value === undefined ? [] : [name, String(value)]));
  if (init.listen === undefined) {
    args.push('--no-direct');
  }
  if (init.traceLogits === true) {
    args.push('--trace-logits');
  }
  if (init.lockstep === true) {
    args.push('--lockstep');
  }
  return args;
}
