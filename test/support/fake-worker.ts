/**
 * A child program with the worker's flags and its three services, without llama.cpp: the model file is a JSON of
 * `FakeModel`. It checks what it is asked more strictly than a worker would, so that a wrong order shows.
 */
import { readFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { create, fromBinary, toBinary, type DescMessage, type DescService, type MessageInitShape, type MessageShape } from '@bufbuild/protobuf';
import * as grpc from '@grpc/grpc-js';
import { toWireError } from '../../src/domain/wire-error.ts';
import { MeshnetError, type ErrorCode } from '../../src/errors.ts';
import { ErrorSchema, Seam } from '../../src/proto/seam_pb.js';
import {
  DescriptionSchema, EventSchema, State, Text, Worker,
  type AdmitRequest, type Description, type ExtendRequest, type LinkRequest, type ReleaseRequest,
} from '../../src/proto/worker_pb.js';
import type { FakeModel } from './fake-model.ts';

const flags = new Map<string, string>();
for (let i = 2; i < process.argv.length; i++) {
  const name = process.argv[i] as string;
  const value = process.argv[i + 1];
  if (value === undefined || value.startsWith('--')) {
    flags.set(name, '');
  } else {
    flags.set(name, value);
    i++;
  }
}
const flag = (name: string): string => {
  const value = flags.get(name);
  if (value === undefined) {
    process.exit(2);
  }
  return value;
};

const model = JSON.parse(readFileSync(flag('--model'), 'utf8')) as FakeModel;
const token = readFileSync(flag('--token-file'));
const digest = Buffer.from(flags.get('--model-digest') ?? '', 'hex');

if (model.ignoreTerm === true) {
  process.on('SIGTERM', () => undefined);
} else {
  process.stdin.resume().once('end', () => process.exit(0));
}
if (model.exit !== undefined) {
  process.stderr.write(`${model.stderr ?? ''}\n`, () => process.exit(model.exit));
}

const [first = 0, last = 0] = (flags.get('--layers') ?? '0-0').split('-').map(Number);
const lanes = new Map<string, { request: AdmitRequest; tickets: Map<number, Buffer>; linked: Map<number, LinkRequest> }>();
const watchers = new Set<grpc.ServerWritableStream<unknown, Uint8Array>>();
const streams = new Map<string, grpc.ServerDuplexStream<Buffer, Buffer>>();
let describes = 0;
let draining = false;

function description(): MessageShape<typeof DescriptionSchema> {
  const loading = ++describes <= (model.loadingAnswers ?? 0);
  const failure = model.failure === undefined ? undefined
    : toWireError(new MeshnetError(model.failure as ErrorCode, 'the fake was told to fail'));
  return create(DescriptionSchema, {
    state: failure !== undefined ? State.FAILED : loading ? State.LOADING : draining ? State.DRAINING : State.READY,
    progress: loading ? describes / 10 : 1,
    failure,
    engineClass: model.engineClass,
    architecture: model.architecture,
    layerFirst: first,
    layerLast: last,
    nLayer: model.nLayer,
    nCtxTrain: 2048,
    budget: { cellsTotal: 1024, cellsFree: 1024, sequencesTotal: 8, sequencesFree: 8 - lanes.size },
    certificate: Buffer.from(model.certificate, 'hex'),
    seamPort: flags.has('--no-direct') ? 0 : 4321,
    bootId: randomBytes(16),
    maxChunkTokens: 64,
    pid: process.pid,
  });
}

const keyOf = (lane: { session: Uint8Array; epoch: number; stage: number } | undefined): string =>
  `${Buffer.from(lane?.session ?? []).toString('hex')}/${lane?.epoch}/${lane?.stage}`;

function laneOf(lane: AdmitRequest['lane']): NonNullable<ReturnType<typeof lanes.get>> {
  const known = lanes.get(keyOf(lane));
  if (known === undefined) {
    throw new MeshnetError('LANE_NOT_OPEN');
  }
  return known;
}

function admit(request: AdmitRequest): object {
  if (Buffer.compare(request.modelDigest, digest) !== 0) {
    throw new MeshnetError('MODEL_MISMATCH');
  }
  if (lanes.has(keyOf(request.lane))) {
    throw new MeshnetError('LANE_EXISTS');
  }
  if (lanes.size >= (model.sequences ?? 8)) {
    throw new MeshnetError('NO_CAPACITY', 'no sequence id is free', { details: { retryAfterMs: 1000, required: 1, available: 0 } });
  }
  const tickets = new Map(request.seams.map(({ role }) => [role as number, randomBytes(32)]));
  lanes.set(keyOf(request.lane), { request, tickets, linked: new Map() });
  return { positions: request.positions, tickets: [...tickets].map(([role, ticket]) => ({ role, ticket })) };
}

/** As many positions as the cells that it tells of, for each lane. */
function extend({ lane, positions }: ExtendRequest): object {
  laneOf(lane);
  if (positions > 1024) {
    throw new MeshnetError('NO_CAPACITY', 'no cells are free');
  }
  return {};
}

async function link(request: LinkRequest): Promise<object> {
  const lane = laneOf(request.lane);
  if (lane.request.seams.find(({ role }) => role === request.role)?.peerId !== request.peerId) {
    throw new MeshnetError('PEER_MISMATCH');
  }
  lane.linked.set(request.role, request);
  if (request.direct !== undefined) {
    const endpoint = request.direct.endpoints.find((text) => text.startsWith('open.'));
    if (endpoint === undefined) {
      throw new MeshnetError('SEAM_UNREACHABLE');
    }
    return { endpoint, rttUs: 77 };
  }
  if (request.bridge !== undefined) {
    await openBridge(request);
    return { endpoint: request.bridge.socketPath, rttUs: 1234 };
  }
  return {};
}

/** Sends one packet across the bridge and waits for its echo. The stream stays until the lane ends. */
function openBridge({ bridge, ticket, lane }: LinkRequest): Promise<void> {
  const client = new grpc.Client(`unix:${bridge?.socketPath}`, grpc.credentials.createInsecure());
  const metadata = new grpc.Metadata();
  metadata.set('meshnet-bridge-bin', Buffer.from(bridge?.bridgeId ?? []));
  metadata.set('meshnet-ticket-bin', Buffer.from(ticket));
  const call = client.makeBidiStreamRequest<Buffer, Buffer>(pathOf(Seam, 'Stream'), same, same, metadata);
  ended.set(keyOf(lane), () => call.end());
  return new Promise((resolve, reject) => {
    call.once('data', (packet: Buffer) => {
      call.on('data', () => undefined);
      if (packet.toString() === 'echo of hello') {
        resolve();
      } else {
        reject(new MeshnetError('MALFORMED', packet.toString()));
      }
    });
    call.once('error', () => reject(new MeshnetError('SEAM_UNREACHABLE')));
    call.once('end', () => client.close());
    call.write(Buffer.from('hello'));
  });
}
const ended = new Map<string, () => void>();

function release({ lane }: ReleaseRequest): object {
  lanes.delete(keyOf(lane));
  ended.get(keyOf(lane))?.();
  ended.delete(keyOf(lane));
  streams.get(keyOf(lane))?.end();
  return {};
}

/** A bridged stream: every packet comes back, and `lane over` as a packet ends the lane. */
function seam(call: grpc.ServerDuplexStream<Buffer, Buffer>): void {
  call.on('error', () => undefined);
  const ticket = call.metadata.get('meshnet-ticket-bin')[0] as Buffer | undefined;
  const peer = call.metadata.get('meshnet-peer')[0];
  const found = [...lanes.entries()].flatMap(([key, { request, tickets }]) => request.seams.map((wish) => ({ key, wish, tickets })))
    .find(({ wish, tickets }) => wish.peerId === peer && ticket !== undefined && tickets.get(wish.role)?.equals(ticket) === true);
  if (!isOurs(call.metadata) || found === undefined) {
    call.emit('error', { code: grpc.status.PERMISSION_DENIED, details: 'not for you' });
    return;
  }
  streams.set(found.key, call);
  call.on('data', (packet: Buffer) => call.write(Buffer.concat([Buffer.from('echo of '), packet])));
  call.on('end', () => call.end());
}

function isOurs(metadata: grpc.Metadata): boolean {
  return (metadata.get('meshnet-token-bin')[0] as Buffer | undefined)?.equals(token) === true;
}

type Handler = (request: never) => object | Promise<object>;

function serve(server: grpc.Server, service: DescService, handlers: Record<string, Handler>): void {
  for (const method of service.methods) {
    const handler = handlers[method.localName];
    if (handler !== undefined) {
      server.register(pathOf(service, method.name), unary(method.input, method.output, handler), same, same, 'unary');
    }
  }
}

function unary(input: DescMessage, output: DescMessage, handler: Handler): grpc.handleUnaryCall<Buffer, Buffer> {
  const answer: (...of: Parameters<grpc.handleUnaryCall<Buffer, Buffer>>) => Promise<void> = async (call, callback) => {
    try {
      const reply = await handler(fromBinary(input, call.request) as never);
      callback(null, Buffer.from(toBinary(output, create(output, reply as MessageInitShape<DescMessage>))));
    } catch (err) {
      const metadata = new grpc.Metadata();
      metadata.set('meshnet-error-bin', Buffer.from(toBinary(ErrorSchema, toWireError(err))));
      callback({ code: grpc.status.FAILED_PRECONDITION, details: 'refused', metadata });
    }
  };
  return (call, callback) => {
    if (isOurs(call.metadata)) {
      void answer(call, callback);
    } else {
      callback({ code: grpc.status.UNAUTHENTICATED, details: 'the token is wrong' });
    }
  };
}

function watch(call: grpc.ServerWritableStream<unknown, Uint8Array>): void {
  watchers.add(call);
  call.on('error', () => undefined);
  if (model.silent !== true) {
    const report = (): void => {
      const budget = { cellsTotal: 1024, cellsFree: 1000, sequencesTotal: 8, sequencesFree: 8 - lanes.size };
      const done = { bytesIn: 4096n, packetsIn: 3n, ticks: 9n, tokensDecoded: 2n, tokensPrefilled: 16n };
      // 31 is NO_CAPACITY; the other two are codes that nobody knows.
      const refusals = [{ code: 31, count: 4n }, { code: 900, count: 1n }, { code: 901, count: 1n }];
      const load = { queueDepth: 5, batchSize: 2.5, decodeTickUs: 700, prefillTickUs: 9000, refusals };
      call.write(eventOf({ case: 'report', value: { budget, lanes: lanes.size, ...done, ...load } }));
    };
    report();
    const timer = setInterval(report, 20);
    call.on('cancelled', () => clearInterval(timer));
  }
}

function eventOf(kind: MessageInitShape<typeof EventSchema>['kind']): Buffer {
  return Buffer.from(toBinary(EventSchema, create(EventSchema, { kind })));
}

/** A release of epoch 66 is how a test says: this lane ends by itself. */
function releaseOrEnd(request: ReleaseRequest): object {
  if (request.lane?.epoch === 66) {
    for (const call of watchers) {
      call.write(eventOf({ case: 'laneEnded', value: { lane: { ...request.lane, epoch: 1 }, error: { code: request.reason } } }));
    }
    return {};
  }
  return release(request);
}

function pathOf(service: DescService, method: string): string {
  return `/${service.typeName}/${method}`;
}

function same(bytes: Buffer): Buffer {
  return bytes;
}

const server = new grpc.Server();
if (flags.has('--text')) {
  serve(server, Text, {
    describe: () => ({ nVocab: 100, endIds: [2, 7], pid: process.pid, nCtxTrain: 2048, architecture: 'llama' }),
    tokenize: ({ text }: { text: string }) => ({ ids: [...Buffer.from(text)] }),
    render: ({ messagesJson, toolsJson }: { messagesJson: string; toolsJson: string }) => {
      if (messagesJson.includes('for ever')) {
        return new Promise(() => undefined);
      }
      if (messagesJson.includes('nonsense')) {
        throw new MeshnetError('TEXT_FAILED', 'the template refuses');
      }
      return { prompt: messagesJson + toolsJson, ids: [1, 2, 3] };
    },
    pieces: ({ ids, special }: { ids: number[]; special: boolean }) => {
      if (ids.some((id) => id >= 100)) {
        throw new MeshnetError('TOKEN_INVALID');
      }
      return { pieces: ids.map((id) => Buffer.from(`${special ? 's' : ''}${id}@${process.pid} `)) };
    },
    grammarFromSchema: ({ jsonSchema }: { jsonSchema: string }) => {
      if (jsonSchema === 'no schema') {
        throw new MeshnetError('GRAMMAR_INVALID');
      }
      return { grammar: `root ::= "${jsonSchema}"` };
    },
  });
} else {
  serve(server, Worker, {
    describe: (): Description => description(),
    probe: () => {
      if (model.probeFails === true) {
        throw new MeshnetError('DECODE_FAILED');
      }
      return { prefillUs: 1600, decodeUs: 700 };
    },
    admit,
    link,
    extend,
    release: releaseOrEnd,
    drain: () => {
      draining = true;
      return { lanes: lanes.size };
    },
  });
  server.register(pathOf(Worker, 'Watch'), watch, same, same, 'serverStream');
  server.register(pathOf(Seam, 'Stream'), seam, same, same, 'bidi');
}
if (model.exit === undefined) {
  server.bindAsync(`unix:${flag('--control')}`, grpc.ServerCredentials.createInsecure(), (err) => {
    if (err !== null) {
      process.exit(70);
    }
    if (model.crashAfterMs !== undefined) {
      setTimeout(() => process.kill(process.pid, 'SIGKILL'), model.crashAfterMs);
    }
  });
}
