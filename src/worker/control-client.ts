import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from '@bufbuild/protobuf';
import {
  type AdmitReply,
  type AdmitRequestSchema,
  type Description,
  type DrainReply,
  type Event,
  type ExtendRequestSchema,
  type LinkReply,
  type LinkRequestSchema,
  type ProbeReply,
  type ReleaseRequestSchema,
  Worker,
} from '../proto/worker_pb.js';
import { CallQueue } from './call-queue.ts';
import { GrpcClient, type GrpcTarget } from './grpc.ts';
import type { AbortOptions } from './packet-duplex.ts';

export interface ControlTimeouts {
  /** @default 5000 ms; describe, admit, extend, release and drain only touch tables. */
  callMs: number;
  /** @default 120000 ms; a probe computes. */
  probeMs: number;
  /** @default 2000 ms on top of the request's own limit. */
  linkSlackMs: number;
}

/** Of those that only touch tables, and of those that wait for another worker. The worker has 64 threads for both and for watches. */
const CALLS_AT_ONCE = 8;
const LINKS_AT_ONCE = 32;

const DEFAULTS: ControlTimeouts = { callMs: 5_000, probeMs: 120_000, linkSlackMs: 2_000 };

/**
 * The private interface of one boot of a worker. Every method throws what the worker refused with, or WORKER_LOST,
 * DEADLINE_EXCEEDED, CANCELLED.
 */
export class ControlClient {
  readonly #grpc: GrpcClient;
  readonly #timeouts: ControlTimeouts;
  readonly #calls = new CallQueue(CALLS_AT_ONCE);
  readonly #links = new CallQueue(LINKS_AT_ONCE);

  constructor(target: GrpcTarget, init: Partial<ControlTimeouts> = {}) {
    this.#grpc = new GrpcClient(target);
    this.#timeouts = { ...DEFAULTS, ...init };
  }

  ready(options: AbortOptions & { timeoutMs: number }): Promise<void> {
    return this.#grpc.ready(options);
  }

  describe(options: AbortOptions): Promise<Description> {
    return this.#call(Worker.method.describe, {}, options);
  }

  /** Events until the call ends. `reportIntervalMs` 0: no reports. */
  watch(reportIntervalMs: number, options: AbortOptions): AsyncGenerator<Event, void, undefined> {
    return this.#grpc.serverStream(Worker.method.watch, { reportIntervalMs }, options);
  }

  probe(nTokens: number, options: AbortOptions): Promise<ProbeReply> {
    return this.#grpc.unary(Worker.method.probe, { nTokens }, { ...options, timeoutMs: this.#timeouts.probeMs });
  }

  admit(request: MessageInitShape<typeof AdmitRequestSchema>, options: AbortOptions): Promise<AdmitReply> {
    return this.#call(Worker.method.admit, request, options);
  }

  link(
    request: MessageInitShape<typeof LinkRequestSchema> & { timeoutMs: number },
    options: AbortOptions,
  ): Promise<LinkReply> {
    const timeoutMs = request.timeoutMs + this.#timeouts.linkSlackMs;
    return this.#links.run('Link', () => this.#grpc.unary(Worker.method.link, request, { ...options, timeoutMs }), options);
  }

  /** Throws NO_CAPACITY: the lane keeps what it has. */
  async extend(request: MessageInitShape<typeof ExtendRequestSchema>, options: AbortOptions): Promise<void> {
    await this.#call(Worker.method.extend, request, options);
  }

  async release(request: MessageInitShape<typeof ReleaseRequestSchema>, options: AbortOptions): Promise<void> {
    await this.#call(Worker.method.release, request, options);
  }

  drain(options: AbortOptions): Promise<DrainReply> {
    return this.#call(Worker.method.drain, {}, options);
  }

  close(): void {
    this.#grpc.close();
  }

  #call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>, request: MessageInitShape<I>, options: AbortOptions,
  ): Promise<MessageShape<O>> {
    const timed = { ...options, timeoutMs: this.#timeouts.callMs };
    return this.#calls.run(method.name, () => this.#grpc.unary(method, request, timed), options);
  }
}
