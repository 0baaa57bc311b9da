import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  create,
  fromBinary,
  toBinary,
} from '@bufbuild/protobuf';
import { type ChannelOptions, Client, Metadata, connectivityState, credentials } from '@grpc/grpc-js';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { fromAbort, fromCallError, outOfTime } from './grpc-error.ts';
import type { AbortOptions } from './packet-duplex.ts';

/** A process beside the node that serves gRPC on a socket of its own. */
export interface GrpcTarget {
  readonly socketPath: string;
  /** The per-boot token that every call carries. */
  readonly token: Uint8Array;
}

export interface CallOptions extends AbortOptions {
  timeoutMs: number;
}

/** One look at whether a process accepts connections. */
const WATCH_MS = 250;

/** Metadata key of the per-boot token. */
const TOKEN_KEY = 'meshnet-token-bin';

/** One connection a client, no retries (they would buffer), and messages as long as a packet. */
export const CHANNEL_OPTIONS: Readonly<ChannelOptions> = Object.freeze({
  'grpc.use_local_subchannel_pool': 1,
  'grpc.enable_retries': 0,
  'grpc.enable_http_proxy': 0,
  'grpc.service_config_disable_resolution': 1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 500,
  'grpc.max_send_message_length': LIMITS.packetBytes,
  'grpc.max_receive_message_length': LIMITS.packetBytes,
});

export function tokenMetadata(token: Uint8Array): Metadata {
  const metadata = new Metadata();
  metadata.set(TOKEN_KEY, Buffer.from(token));
  return metadata;
}

/** Calls services by their generated descriptors. Every call ends within its deadline, whatever the process does. */
export class GrpcClient {
  readonly #client: Client;
  readonly #token: Uint8Array;
  #closed = false;

  /** `maxMessageBytes`: of a request or answer. @default one packet */
  constructor(target: GrpcTarget, maxMessageBytes: number = LIMITS.packetBytes) {
    this.#client = new Client(`unix:${target.socketPath}`, credentials.createInsecure(), {
      ...CHANNEL_OPTIONS,
      'grpc.max_send_message_length': maxMessageBytes,
      'grpc.max_receive_message_length': maxMessageBytes,
    });
    this.#token = target.token;
  }

  /** Resolves when the process accepts connections. @throws {MeshnetError} DEADLINE_EXCEEDED, CANCELLED */
  async ready(options: CallOptions): Promise<void> {
    const channel = this.#client.getChannel();
    const until = performance.now() + options.timeoutMs;
    // The client's own wait outlives a `close` right after it, and holds the process until its deadline: so, short ones.
    for (let state = channel.getConnectivityState(true); state !== connectivityState.READY; state = channel.getConnectivityState(true)) {
      const before = state;
      const left = { signal: options.signal, timeoutMs: Math.max(0, until - performance.now()) };
      await settle<void>(left, 'connecting', (resolve) => {
        channel.watchConnectivityState(before, Date.now() + WATCH_MS, () => resolve());
        return () => undefined;
      });
    }
  }

  /** @throws {MeshnetError} what the process refused with; WORKER_LOST, DEADLINE_EXCEEDED, CANCELLED */
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options: CallOptions,
  ): Promise<MessageShape<O>> {
    return settle(options, method.name, (resolve, reject) => {
      if (this.#closed) {
        throw new MeshnetError('WORKER_LOST', `${method.name}: the process is gone`, { details: { method: method.name } });
      }
      const call = this.#client.makeUnaryRequest(
        pathOf(method),
        serializer(method.input),
        deserializer(method.output),
        create(method.input, request),
        tokenMetadata(this.#token),
        { deadline: Date.now() + options.timeoutMs },
        (err, value) => {
          if (err === null && value !== undefined) {
            resolve(value);
          } else {
            reject(fromCallError(err, method.name));
          }
        },
      );
      return () => call.cancel();
    });
  }

  /** Messages until the process ends the call. Breaking out, or the signal, cancels it. No deadline of its own. */
  async *serverStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    options: AbortOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const { signal } = options;
    if (signal.aborted) {
      throw fromAbort(signal, method.name);
    }
    const call = this.#client.makeServerStreamRequest(
      pathOf(method),
      serializer(method.input),
      deserializer(method.output),
      create(method.input, request),
      tokenMetadata(this.#token),
    );
    const cancel = (): void => call.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    // The cancel in `finally` ends the call with an error that nobody waits for any more.
    call.on('error', () => undefined);
    try {
      for await (const message of call) {
        yield message as MessageShape<O>;
      }
    } catch (err) {
      throw signal.aborted ? fromAbort(signal, method.name) : fromCallError(err, method.name);
    } finally {
      signal.removeEventListener('abort', cancel);
      call.cancel();
    }
  }

  close(): void {
    this.#closed = true;
    this.#client.close();
  }
}

/**
 * The callback's answer, the signal or the deadline, whichever is first; on the latter two `start`'s result is called to
 * stop the work. The timer ends with the work: a signal with a timeout would hold the whole call until the time is over.
 */
function settle<T>(
  { signal, timeoutMs }: CallOptions,
  what: string,
  start: (resolve: (value: T) => void, reject: (err: Error) => void) => () => void,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    if (signal.aborted) {
      reject(fromAbort(signal, what));
      return;
    }
    let stop = (): void => undefined;
    const giveUp = (err: Error): void => {
      fail(err);
      stop();
    };
    const onAbort = (): void => giveUp(fromAbort(signal, what));
    const timer = setTimeout(() => giveUp(outOfTime(what)), timeoutMs);
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    };
    const fail = (err: Error): void => {
      done();
      reject(err);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      stop = start((value) => {
        done();
        resolve(value);
      }, fail);
    } catch (err) {
      fail(toMeshnetError(err));
    }
  });
}

function pathOf(method: DescMethodUnary | DescMethodServerStreaming): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function serializer<D extends DescMessage>(schema: D): (message: MessageShape<D>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

function deserializer<D extends DescMessage>(schema: D): (bytes: Buffer) => MessageShape<D> {
  // Not a Buffer, so that byte fields are plain arrays like everywhere else.
  return (bytes) => fromBinary(schema, new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
}
