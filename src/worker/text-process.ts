import { EventEmitter, once } from 'node:events';
import { MeshnetError, isMeshnetError, toMeshnetError } from '../errors.ts';
import { Text, type TextDescription } from '../proto/worker_pb.js';
import type { BackoffInit } from './backoff.ts';
import { CallQueue } from './call-queue.ts';
import type { Child } from './child.ts';
import { fromAbort } from './grpc-error.ts';
import { type CallOptions, GrpcClient } from './grpc.ts';
import type { AbortOptions } from './packet-duplex.ts';
import { PieceBlocks, type PieceOptions } from './piece-blocks.ts';
import { Supervisor } from './supervisor.ts';

export interface TextProcessInit {
  /** Absolute path of `meshnet-worker`. */
  readonly binary: string;
  /** Folder for sockets. */
  readonly runtimeDir: string;
  /** GGUF file; only its header is read. */
  readonly model: string;
  /** Hard limit of one call; the process is killed and started again when it is passed. @default 5000 ms */
  readonly callTimeoutMs?: number;
  /** From the spawn to the first answer. @default 60000 ms */
  readonly startTimeoutMs?: number;
  readonly stopTimeoutMs?: number;
  readonly backoff?: BackoffInit;
}

export interface RenderInput {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly addGenerationPrompt: boolean;
}

/** A request body is at most 4 MiB; its ids take at most about as many bytes again. */
const MESSAGE_BYTES = 16 * 1024 * 1024;
/** More than most vocabularies have. */
const REMEMBERED_PIECES = 262_144;
/** Calls that the process has at once: more than it has cores gain nothing. */
const CALLS_AT_ONCE = 8;
/** Of a call whose process was lost to another one. */
const ATTEMPTS = 3;

interface Boot {
  readonly child: Child;
  readonly client: GrpcClient;
}

/** Vocabulary, chat template and grammars of one model, in a process that can be thrown away. */
export class TextProcess {
  readonly #init: TextProcessInit;
  readonly #callTimeoutMs: number;
  readonly #supervisor: Supervisor;
  readonly #events = new EventEmitter<{ ready: []; failed: [] }>();
  readonly #pieces: PieceBlocks;
  readonly #calls = new CallQueue(CALLS_AT_ONCE);
  #boot: Boot | undefined;
  #description: TextDescription | undefined;
  #failure: MeshnetError | undefined;
  #stop = new AbortController();

  constructor(init: TextProcessInit) {
    this.#init = init;
    this.#callTimeoutMs = init.callTimeoutMs ?? 5_000;
    this.#pieces = new PieceBlocks({
      ask: async (ids, { special = false, ...options }) => {
        const request = { ids: [...ids], special };
        return (await this.#call((client, call) => client.unary(Text.method.pieces, request, call), options)).pieces;
      },
      size: () => this.#description?.nVocab ?? 0,
    }, { remembered: REMEMBERED_PIECES });
    this.#events.setMaxListeners(1024);
    this.#supervisor = new Supervisor({
      what: 'text process',
      child: {
        binary: init.binary,
        runtimeDir: init.runtimeDir,
        stopTimeoutMs: init.stopTimeoutMs,
        args: ({ socketPath, tokenFile }) => [
          '--text', '--model', init.model, '--control', socketPath, '--token-file', tokenFile,
          '--parent-pid', String(process.pid), '--time-limit-ms', String(this.#callTimeoutMs),
        ],
      },
      // Texts of strangers may kill it again and again; as long as it starts it is worth starting.
      backoff: { baseMs: 100, stableMs: 1, ...init.backoff },
      live: (child, useful, signal) => this.#live(child, useful, signal),
      onLost: () => undefined,
      onFailed: (err) => {
        this.#failure = err;
        this.#events.emit('failed');
      },
    });
  }

  start(): void {
    this.#stop = new AbortController();
    this.#failure = undefined;
    this.#supervisor.start();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#supervisor.stop();
  }

  /** Of the vocabulary. @throws {MeshnetError} WORKER_LOST before the first start has ended, see `ready` */
  get description(): TextDescription {
    if (this.#description === undefined) {
      throw this.#failure ?? new MeshnetError('WORKER_LOST', 'the text process has not answered yet');
    }
    return this.#description;
  }

  /** Ids that end a generation. */
  get endIds(): ReadonlySet<number> {
    return new Set(this.description.endIds);
  }

  /** @throws {MeshnetError} what it failed with for good; CANCELLED, DEADLINE_EXCEEDED */
  async ready(options: AbortOptions): Promise<TextDescription> {
    await this.#running(options);
    return this.description;
  }

  /** Messages to prompt by the model's chat template. @throws {MeshnetError} TEXT_FAILED, WORKER_LOST */
  async render(input: RenderInput, options: AbortOptions): Promise<{ prompt: string; ids: number[] }> {
    const request = {
      messagesJson: JSON.stringify(input.messages),
      toolsJson: input.tools === undefined || input.tools.length === 0 ? '' : JSON.stringify(input.tools),
      addGenerationPrompt: input.addGenerationPrompt,
    };
    const { prompt, ids } = await this.#call((client, call) => client.unary(Text.method.render, request, call), options);
    return { prompt, ids };
  }

  /** Plain text to ids. `addSpecial` (default true): the tokens that the vocabulary puts around a text. */
  async tokenize(
    text: string,
    options: AbortOptions & { addSpecial?: boolean; parseSpecial?: boolean },
  ): Promise<number[]> {
    const request = { text, addSpecial: options.addSpecial ?? true, parseSpecial: options.parseSpecial ?? false };
    const { ids } = await this.#call((client, call) => client.unary(Text.method.tokenize, request, call), options);
    return ids;
  }

  /** The bytes of each id, together the text; of control tokens only with `special`. @throws {MeshnetError} TOKEN_INVALID */
  pieces(ids: readonly number[], options: PieceOptions): Promise<Uint8Array[]> {
    return this.#pieces.get(ids, options);
  }

  /** GBNF of a JSON schema. @throws {MeshnetError} GRAMMAR_INVALID */
  async grammarFromSchema(jsonSchema: string, options: AbortOptions): Promise<string> {
    const { grammar } = await this.#call(
      (client, call) => client.unary(Text.method.grammarFromSchema, { jsonSchema }, call),
      options,
    );
    return grammar;
  }

  #call<T>(run: (client: GrpcClient, options: CallOptions) => Promise<T>, options: AbortOptions): Promise<T> {
    return this.#calls.run('a call to the text process', () => this.#attempt(run, options), options);
  }

  /**
   * One call within the hard limit. A process that is past it may be busy for ever, so it is killed; whoever lost a call
   * by that, and has not been the cause, is served by the next one.
   */
  async #attempt<T>(run: (client: GrpcClient, options: CallOptions) => Promise<T>, options: AbortOptions): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const boot = await this.#running(options);
      const startedAt = performance.now();
      try {
        return await run(boot.client, { signal: options.signal, timeoutMs: this.#callTimeoutMs });
      } catch (err) {
        if (options.signal.aborted) {
          throw err;
        }
        const failure = this.#failureOf(toMeshnetError(err), performance.now() - startedAt);
        if (failure.code === 'WORKER_LOST' || isMeshnetError(err, 'DEADLINE_EXCEEDED')) {
          this.#drop(boot);
        }
        if (failure.code !== 'WORKER_LOST' || attempt === ATTEMPTS) {
          throw failure;
        }
      }
    }
  }

  /** The process watches its own processor time too, and exits: the call that ran for long was the cause. */
  #failureOf(err: MeshnetError, elapsedMs: number): MeshnetError {
    const tooLong = err.code === 'DEADLINE_EXCEEDED' || (err.code === 'WORKER_LOST' && elapsedMs > this.#callTimeoutMs / 2);
    if (tooLong) {
      const details = { timeoutMs: this.#callTimeoutMs };
      return new MeshnetError('TEXT_FAILED', 'a text needed more time than one may', { cause: err, details });
    }
    return err.code === 'INTERNAL' ? new MeshnetError('TEXT_FAILED', err.message, { cause: err, details: err.details }) : err;
  }

  /** Nobody gets this boot again; the supervisor makes another. */
  #drop(boot: Boot): void {
    boot.child.kill();
    if (this.#boot === boot) {
      this.#boot = undefined;
    }
  }

  async #running(options: AbortOptions): Promise<Boot> {
    return this.#boot ?? await this.#nextBoot(options);
  }

  async #nextBoot(options: AbortOptions): Promise<Boot> {
    const limit = AbortSignal.timeout(this.#init.startTimeoutMs ?? 60_000);
    const signal = AbortSignal.any([options.signal, this.#stop.signal, limit]);
    while (this.#boot === undefined) {
      if (this.#failure !== undefined) {
        throw this.#failure;
      }
      if (signal.aborted) {
        throw fromAbort(signal, 'waiting for the text process');
      }
      const waited = new AbortController();
      const wait = { signal: AbortSignal.any([signal, waited.signal]) };
      const events = [once(this.#events, 'ready', wait), once(this.#events, 'failed', wait)];
      await Promise.race(events).catch(() => undefined);
      waited.abort();
      await Promise.allSettled(events);
    }
    return this.#boot;
  }

  async #live(child: Child, useful: () => void, signal: AbortSignal): Promise<void> {
    const client = new GrpcClient(child.target, MESSAGE_BYTES);
    try {
      const timeoutMs = this.#init.startTimeoutMs ?? 60_000;
      await client.ready({ signal, timeoutMs });
      this.#description = await client.unary(Text.method.describe, {}, { signal, timeoutMs });
      this.#boot = { child, client };
      useful();
      this.#events.emit('ready');
      if (!signal.aborted) {
        await once(signal, 'abort');
      }
    } finally {
      this.#boot = undefined;
      client.close();
    }
  }
}
