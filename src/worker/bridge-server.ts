import { randomBytes } from 'node:crypto';
import { chmod, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Server, ServerCredentials, type ServerDuplexStream } from '@grpc/grpc-js';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { PathKind } from '../proto/peer_pb.js';
import { Seam } from '../proto/seam_pb.js';
import { fromAbort } from './grpc-error.ts';
import type { AbortOptions, BridgeDestination, PacketDialer } from './packet-duplex.ts';
import { type PacketCall, pump, type PumpLimits, serverCall } from './pump.ts';
import { makeSocketFolder } from './socket-folder.ts';

export interface BridgeServerComponents {
  readonly dialer: PacketDialer;
}

export interface BridgeServerInit {
  /** Folder in which the socket's own folder is made. */
  readonly runtimeDir: string;
  /** Bridges open or expected at once. @default 1024 */
  readonly maxBridges?: number;
  /** For the other node to be ready. @default 15000 ms */
  readonly dialTimeoutMs?: number;
  readonly limits?: PumpLimits;
}

/** Metadata by which a worker says which bridge it is opening. */
const BRIDGE_KEY = 'meshnet-bridge-bin';
const BRIDGE_ID_BYTES = 16;

/** A bridge that a worker may open once. */
export interface ExpectedBridge {
  /** Metadata `meshnet-bridge-bin`. */
  readonly id: Uint8Array;
  /** How its packets travel, once the other node has answered. */
  readonly path: PathKind;
  /** Why it could not be opened, or how it ended. */
  readonly failure: MeshnetError | undefined;
  /** Takes the permission back when it has not been used. */
  forget(): void;
}

/** The workers' way out when no direct connection can be made: a seam on a Unix socket, carried on by libp2p. */
export class BridgeServer {
  readonly #dialer: PacketDialer;
  readonly #init: BridgeServerInit;
  readonly #expected = new Map<string, Bridge>();
  readonly #open = new Set<Promise<void>>();
  #stop = new AbortController();
  #server: Server | undefined;
  #folder: string | undefined;

  constructor(components: BridgeServerComponents, init: BridgeServerInit) {
    this.#dialer = components.dialer;
    this.#init = init;
  }

  /** @throws {MeshnetError} ALREADY_STOPPED before the start */
  get socketPath(): string {
    if (this.#folder === undefined) {
      throw new MeshnetError('ALREADY_STOPPED', 'the bridge is not running');
    }
    return join(this.#folder, 's');
  }

  async start(): Promise<void> {
    this.#stop = new AbortController();
    this.#folder = await makeSocketFolder(this.#init.runtimeDir);
    const server = new Server({
      'grpc.max_receive_message_length': LIMITS.packetBytes,
      'grpc.max_send_message_length': LIMITS.packetBytes,
    });
    server.register(
      `/${Seam.typeName}/${Seam.method.stream.name}`,
      (call: ServerDuplexStream<Buffer, Buffer>) => this.#accept(call),
      same,
      same,
      'bidi',
    );
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(`unix:${this.socketPath}`, ServerCredentials.createInsecure(), (err) => {
        if (err === null) {
          resolve();
        } else {
          reject(new MeshnetError('ADDRESS_IN_USE', `the bridge cannot listen: ${err.message}`, { cause: err }));
        }
      });
    });
    await chmod(this.socketPath, 0o600);
  }

  async stop(): Promise<void> {
    this.#stop.abort(new MeshnetError('CANCELLED', 'the node stops'));
    this.#expected.clear();
    await Promise.all(this.#open);
    this.#server?.forceShutdown();
    this.#server = undefined;
    if (this.#folder !== undefined) {
      await rm(this.#folder, { recursive: true, force: true });
      this.#folder = undefined;
    }
  }

  /**
   * Lets a worker open one stream to `destination`, until `forget`. The signal is the life of the lane: it breaks the
   * stream.
   *
   * @throws {MeshnetError} RESOURCE_EXHAUSTED
   */
  expect(destination: BridgeDestination, options: AbortOptions): ExpectedBridge {
    const limit = this.#init.maxBridges ?? 1024;
    if (this.#expected.size + this.#open.size >= limit) {
      throw new MeshnetError('RESOURCE_EXHAUSTED', 'too many bridges are open', { details: { limit } });
    }
    const bridge = new Bridge(destination, options.signal, () => this.#expected.delete(keyOf(bridge.id)));
    this.#expected.set(keyOf(bridge.id), bridge);
    return bridge;
  }

  #accept(stream: ServerDuplexStream<Buffer, Buffer>): void {
    const call = serverCall(stream);
    const id = stream.metadata.get(BRIDGE_KEY)[0];
    const key = id instanceof Buffer ? keyOf(id) : '';
    const bridge = this.#expected.get(key);
    stream.on('error', () => undefined);
    if (bridge === undefined || bridge.signal.aborted) {
      call.abort(new MeshnetError('TICKET_INVALID', 'nobody expects this bridge'));
      return;
    }
    this.#expected.delete(key);
    const carried = this.#carry(bridge, call, stream).finally(() => this.#open.delete(carried));
    this.#open.add(carried);
  }

  async #carry(bridge: Bridge, call: PacketCall, stream: ServerDuplexStream<Buffer, Buffer>): Promise<void> {
    const gone = new AbortController();
    stream.once('cancelled', () => gone.abort(new MeshnetError('CANCELLED', 'the worker gave the bridge up')));
    const life = AbortSignal.any([bridge.signal, this.#stop.signal]);
    const timeout = AbortSignal.timeout(this.#init.dialTimeoutMs ?? 15_000);
    const signal = AbortSignal.any([life, gone.signal, timeout]);
    try {
      const packets = await this.#dialer.dial(bridge.destination, { signal });
      if (signal.aborted) {
        const err = fromAbort(signal, 'dialling the other node');
        packets.abort(err);
        throw err;
      }
      bridge.path = packets.path;
      bridge.failure = await pump(call, packets, { signal: life, limits: this.#init.limits });
    } catch (err) {
      bridge.failure = signal.aborted ? fromAbort(signal, 'dialling the other node') : toMeshnetError(err);
      call.abort(bridge.failure);
    }
  }
}

class Bridge implements ExpectedBridge {
  readonly id: Uint8Array = randomBytes(BRIDGE_ID_BYTES);
  readonly destination: BridgeDestination;
  readonly signal: AbortSignal;
  path: PathKind = PathKind.UNSPECIFIED;
  failure: MeshnetError | undefined;
  readonly forget: () => void;

  constructor(destination: BridgeDestination, signal: AbortSignal, forget: () => void) {
    this.destination = destination;
    this.signal = signal;
    this.forget = forget;
  }
}

function keyOf(id: Uint8Array): string {
  return Buffer.from(id).toString('hex');
}

function same(bytes: Buffer): Buffer {
  return bytes;
}
