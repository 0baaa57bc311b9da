import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { MeshnetError } from '../errors.ts';
import { clientOf, isLoopback } from './access.ts';
import { AnswerMeter } from './answer-meter.ts';
import type { AnswerRequest } from './answer-request.ts';
import type { AnswerApi } from './answer-shape.ts';
import { Answers, type AnswerSummary } from './answers.ts';
import type { Backend } from './backend.ts';
import { parseChatRequest } from './chat-request.ts';
import { chatApi } from './chat-shape.ts';
import { parseCompletionRequest } from './completion-request.ts';
import { completionApi } from './completion-shape.ts';
import { EventStream } from './event-stream.ts';
import { GATEWAY_DEFAULTS, type GatewayInit, type GatewaySettings } from './gateway-init.ts';
import { createHttpServer, type GatewayLog } from './http-server.ts';
import { parseJsonBody } from './json-body.ts';
import { findModel, modelList, modelObject } from './model-list.ts';
import { unobserved, type GatewayMetrics } from './observer.ts';
import { WaitingRoom } from './waiting-room.ts';

export interface GatewayComponents {
  backend: Backend;
  log: GatewayLog;
  /** Shown at `/metrics`, which does not exist without them. */
  metrics?: GatewayMetrics;
}

/** One HTTP request for an answer, and what times it. */
interface Exchange {
  readonly http: FastifyRequest;
  readonly reply: FastifyReply;
  readonly meter: AnswerMeter;
}

/** Base URLs are written with and without it. */
const PREFIXES = ['', '/v1'];
/** A client that does not read cannot be told that its answer has ended; it holds up a stop no longer than this. */
const STOP_GRACE_MS = 2000;
/** Names of unknown request fields that have been logged; more than any client has. */
const MAX_LOGGED_FIELDS = 256;

/** The OpenAI API of a node. Once stopped it can be started again. */
export class Gateway {
  readonly #backend: Backend;
  readonly #log: GatewayLog;
  readonly #metrics: GatewayMetrics | undefined;
  readonly #settings: GatewaySettings;
  readonly #answers: Answers;
  readonly #room: WaitingRoom;
  readonly #loggedFields = new Set<string>();
  readonly #running = new Set<Promise<unknown>>();
  #app: FastifyInstance | undefined;
  #stopping = new AbortController();

  /** Throws CONFIG_INVALID when strangers could use it without a key. */
  constructor({ backend, log, metrics }: GatewayComponents, init: GatewayInit = {}) {
    const set = Object.fromEntries(Object.entries(init).filter(([, value]) => value !== undefined));
    this.#settings = Object.freeze({ ...GATEWAY_DEFAULTS, ...set });
    if (!isLoopback(this.#settings.host) && this.#settings.key === undefined) {
      throw new MeshnetError('CONFIG_INVALID', 'the API can be reached from outside and has no key', {
        details: { setting: 'key', host: this.#settings.host },
      });
    }
    this.#backend = backend;
    this.#log = log;
    this.#metrics = metrics;
    this.#room = new WaitingRoom(this.#settings);
    this.#answers = new Answers({ backend, room: this.#room }, this.#settings);
  }

  /** Throws ADDRESS_IN_USE, CONFIG_INVALID when there is no such address. */
  async start(): Promise<void> {
    this.#stopping = new AbortController();
    const app = createHttpServer(this.#settings, this.#log);
    for (const prefix of PREFIXES) {
      app.get(`${prefix}/health`, async (_request, reply) => await this.#health(reply));
      app.get(`${prefix}/models`, async () => modelList(this.#backend.models()));
      app.get(`${prefix}/models/*`, async (request) => {
        return modelObject(findModel(this.#backend.models(), (request.params as Record<string, string>)['*'] ?? ''));
      });
      app.post(`${prefix}/chat/completions`, async (http, reply) => await this.#metered(async (meter) => {
        const request = parseChatRequest(jsonBodyOf(http));
        return await this.#track(this.#answer(chatApi, request, { http, reply, meter }));
      }));
      app.post(`${prefix}/completions`, async (http, reply) => await this.#metered(async (meter) => {
        const request = parseCompletionRequest(jsonBodyOf(http));
        return await this.#track(this.#answer(completionApi, request, { http, reply, meter }));
      }));
    }
    const metrics = this.#metrics;
    if (metrics !== undefined) {
      app.get('/metrics', async (_request, reply) => await expose(metrics, reply));
    }
    const { host, port } = this.#settings;
    try {
      await app.listen({ host, port });
    } catch (cause) {
      const code = (cause as NodeJS.ErrnoException).code === 'EADDRINUSE' ? 'ADDRESS_IN_USE' : 'CONFIG_INVALID';
      throw new MeshnetError(code, 'the API cannot listen', { cause, details: { host, port } });
    }
    this.#app = app;
  }

  /** Running answers are told, as an error in their stream, before their connections end. */
  async stop(): Promise<void> {
    const app = this.#app;
    this.#app = undefined;
    if (app === undefined) {
      return;
    }
    this.#stopping.abort(new MeshnetError('DRAINING', 'the node is stopping'));
    const told = new AbortController();
    await Promise.race([
      Promise.allSettled(this.#running),
      setTimeout(STOP_GRACE_MS, undefined, { signal: told.signal }).catch(() => undefined),
    ]);
    told.abort();
    await app.close();
  }

  /** Where it listens. Throws ALREADY_STOPPED when it does not. */
  get url(): string {
    const address = this.#app?.server.address() as AddressInfo | null | undefined;
    if (address == null) {
      throw new MeshnetError('ALREADY_STOPPED', 'the API is not running');
    }
    return `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`;
  }

  /** Requests that wait for room on a route. */
  get waiting(): number {
    return this.#room.size;
  }

  /** Answers that are being made, those that wait not counted. */
  get answering(): number {
    return this.#running.size - this.#room.size;
  }

  async #health(reply: FastifyReply): Promise<object> {
    const { ready, details } = this.#backend.health();
    reply.code(ready ? 200 : 503);
    const activity = await this.#metrics?.summary();
    const shown = activity === undefined ? details : { ...details, activity };
    return { ...shown, status: ready ? 'ok' : 'unavailable', answers: this.answering, waiting: this.waiting };
  }

  /** Also what is refused for its form. */
  async #metered<T>(work: (meter: AnswerMeter) => Promise<T>): Promise<T> {
    const meter = new AnswerMeter(this.#metrics ?? unobserved);
    try {
      const result = await work(meter);
      meter.ended();
      return result;
    } catch (err) {
      meter.ended(err);
      throw err;
    }
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#running.add(work);
    try {
      return await work;
    } finally {
      this.#running.delete(work);
    }
  }

  async #answer(api: AnswerApi, request: AnswerRequest, { http, reply, meter }: Exchange): Promise<unknown> {
    const started = performance.now();
    this.#logUnknown(request.unknownFields);
    const { maxAnswers, maxQueued, key } = this.#settings;
    // This one is not among them yet. More could neither be answered nor wait, and would only be read.
    const running = this.#running.size;
    if (running >= maxAnswers + maxQueued) {
      throw new MeshnetError('BUSY', undefined, { details: { running, limit: maxAnswers + maxQueued } });
    }
    const gone = clientGone(reply.raw);
    const signal = AbortSignal.any([gone.signal, this.#stopping.signal]);
    try {
      const client = clientOf(http.headers.authorization, http.ip, key);
      const open = await this.#answers.open(api, request, { signal, client, meter });
      reply.header('x-meshnet-route', JSON.stringify(open.generation.route));
      if (request.stream) {
        const summary = await this.#answers.stream(open, request, this.#events(reply));
        this.#logEnd(http, request, summary, started);
        return reply;
      }
      const { body, summary } = await this.#answers.complete(open);
      this.#logEnd(http, request, summary, started);
      reply.header('openai-processing-ms', Math.round(performance.now() - started));
      return body;
    } catch (err) {
      if (!reply.sent) {
        throw err;
      }
      meter.ended(err);
      this.#log.info({ request: http.id, model: request.model, err }, 'answer broken off');
      return reply;
    } finally {
      // An answer that has ended does not notice; one that has not is cancelled on every stage.
      gone.abort(new MeshnetError('CANCELLED'));
    }
  }

  #events(reply: FastifyReply): EventStream {
    const headers = Object.fromEntries(Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]));
    reply.hijack();
    return new EventStream(reply.raw, headers, this.#settings);
  }

  #logEnd(http: FastifyRequest, { model, stream }: AnswerRequest, summary: AnswerSummary, started: number): void {
    const ms = Math.round(performance.now() - started);
    this.#log.info({ request: http.id, model, stream, ms, ...summary }, 'answered');
  }

  #logUnknown(fields: readonly string[]): void {
    for (const field of fields) {
      if (!this.#loggedFields.has(field) && this.#loggedFields.size < MAX_LOGGED_FIELDS) {
        this.#loggedFields.add(field);
        this.#log.info({ field: field.slice(0, 64) }, 'requests have a field that is not known here');
      }
    }
  }
}

async function expose(metrics: GatewayMetrics, reply: FastifyReply): Promise<string> {
  const { contentType, text } = await metrics.exposition();
  void reply.header('content-type', contentType);
  return text;
}

function jsonBodyOf(request: FastifyRequest): Record<string, unknown> {
  const type = request.headers['content-type'] ?? '';
  if (!/^application\/([\w.-]+\+)?json\s*(;|$)/i.test(type)) {
    throw new MeshnetError('REQUEST_INVALID', 'the body has to be of type application/json', {
      details: { param: 'body', contentType: type.slice(0, 100) },
    });
  }
  return parseJsonBody(request.body instanceof Uint8Array ? request.body : new Uint8Array());
}

/** Aborts when the connection closes before the answer is complete. */
function clientGone(response: ServerResponse): AbortController {
  const controller = new AbortController();
  const abort = (): void => controller.abort(new MeshnetError('CANCELLED', 'the client has gone'));
  if (response.destroyed) {
    abort();
  }
  response.once('close', () => {
    if (!response.writableFinished) {
      abort();
    }
  });
  // A write that crosses the close of the connection.
  response.on('error', abort);
  return controller;
}
