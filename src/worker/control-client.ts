import type { MessageInitShape } from '@bufbuild/protobuf';
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

const DEFAULTS: ControlTimeouts = { callMs: 5_000, probeMs: 120_000, linkSlackMs: 2_000 };

/**
 * The private interface of one boot of a worker. Every method throws what the worker refused with, or WORKER_LOST,
 * DEADLINE_EXCEEDED, CANCELLED.
 */
export class ControlClient {
  readonly #grpc: GrpcClient;
  readonly #timeouts: ControlTimeouts;

  constructor(target: GrpcTarget, init: Partial<ControlTimeouts> = {}) {
    this.#grpc = new GrpcClient(target);
    this.#timeouts = { ...DEFAULTS, ...init };
  }

  ready(options: AbortOptions & { timeoutMs: number }): Promise<void> {
    return this.#grpc.ready(options);
  }

  describe(options: AbortOptions): Promise<Description> {
    return this.#grpc.unary(Worker.method.describe, {}, this.#call(options));
  }

  /** Events until the call ends. `reportIntervalMs` 0: no reports. */
  watch(reportIntervalMs: number, options: AbortOptions): AsyncGenerator<Event, void, undefined> {
    return this.#grpc.serverStream(Worker.method.watch, { reportIntervalMs }, options);
  }

  probe(nTokens: number, options: AbortOptions): Promise<ProbeReply> {
    return this.#grpc.unary(Worker.method.probe, { nTokens }, { ...options, timeoutMs: this.#timeouts.probeMs });
  }

  admit(request: MessageInitShape<typeof AdmitRequestSchema>, options: AbortOptions): Promise<AdmitReply> {
    return this.#grpc.unary(Worker.method.admit, request, this.#call(options));
  }

  link(
    request: MessageInitShape<typeof LinkRequestSchema> & { timeoutMs: number },
    options: AbortOptions,
  ): Promise<LinkReply> {
    const timeoutMs = request.timeoutMs + this.#timeouts.linkSlackMs;
    return this.#grpc.unary(Worker.method.link, request, { ...options, timeoutMs });
  }

  /** Throws NO_CAPACITY: the lane keeps what it has. */
  async extend(request: MessageInitShape<typeof ExtendRequestSchema>, options: AbortOptions): Promise<void> {
    await this.#grpc.unary(Worker.method.extend, request, this.#call(options));
  }

  async release(request: MessageInitShape<typeof ReleaseRequestSchema>, options: AbortOptions): Promise<void> {
    await this.#grpc.unary(Worker.method.release, request, this.#call(options));
  }

  drain(options: AbortOptions): Promise<DrainReply> {
    return this.#grpc.unary(Worker.method.drain, {}, this.#call(options));
  }

  close(): void {
    this.#grpc.close();
  }

  #call(options: AbortOptions): AbortOptions & { timeoutMs: number } {
    return { ...options, timeoutMs: this.#timeouts.callMs };
  }
}
