import type { LaneKey } from '../domain/lane.ts';
import { LIMITS } from '../domain/limits.ts';
import { fromWireError, toWireError } from '../domain/wire-error.ts';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import { BridgeOpenSchema, BridgeReadySchema, type BridgeOpen, type PathKind, type SeamEnd } from '../proto/peer_pb.js';
import { checkEnd, checkLane } from './admission-checks.ts';
import type { StreamAcceptor, StreamOpener } from './host.ts';
import type { PeerTarget, ProtocolSpec } from './protocols.ts';
import type { MessageStream } from './wire.ts';

/** One stream per bridged seam; a session has at most three at a stage. */
const SEAM: ProtocolSpec = Object.freeze({
  id: '/meshnet/seam/1',
  maxInboundStreams: 256,
  maxOutboundStreams: 256,
  maxStreamsPerPeer: 256,
  maxStreams: 512,
});

const BRIDGE_VERSION = 1;
/** BridgeOpen: a lane, an end and a ticket. */
const OPEN_BYTES = 256;
/** BridgeReady with an error: its message and eight details. */
const READY_BYTES = 4096;
/** From the stream to BridgeOpen, and from there to BridgeReady. */
const HANDSHAKE_MS = 10_000;

interface SignalOptions {
  signal: AbortSignal;
}

/** Whole packets of a seam in both directions, as opaque bytes. Watching for silence is for who carries them. */
export interface PacketStream {
  readonly path: PathKind;
  readonly remotePeer: string;
  /**
   * In order; pulls, so that a slow consumer slows the other node. Ends when the other side has closed, throws STREAM_ENDED
   * after a reset, FRAME_TOO_LARGE, MALFORMED. Iterated once; leaving early resets the stream.
   */
  read(): AsyncIterable<Uint8Array>;
  /** Resolves when there is room for another. The bytes belong to the stream from then on. */
  write(packet: Uint8Array, options: SignalOptions): Promise<void>;
  /** No more packets from this side; those already written still arrive. */
  close(options: SignalOptions): Promise<void>;
  /** Drops the stream in both directions at once. */
  abort(err: Error): void;
}

/** The lane at another node that a bridged stream is for. */
export interface SeamDestination extends PeerTarget {
  readonly lane: LaneKey;
  readonly end: SeamEnd;
  /** Issued by the other end. */
  readonly ticket: Uint8Array;
}

/**
 * Decides about one BridgeOpen of a peer that Noise authenticated, and gives what carries its packets from after
 * BridgeReady to the end of the stream. What it throws is sent as the refusal.
 */
export type BridgeHandler = (
  open: BridgeOpen, remotePeer: string,
) => ((packets: PacketStream) => Promise<void>) | Promise<(packets: PacketStream) => Promise<void>>;

/** Both sides of `/meshnet/seam/1`. */
export class Bridge {
  readonly #host: StreamOpener & StreamAcceptor;

  constructor({ host }: { host: StreamOpener & StreamAcceptor }) {
    this.#host = host;
  }

  /**
   * Resolves when the other node is ready for packets.
   *
   * @throws {MeshnetError} its refusal, SEAM_UNREACHABLE when there is no way to it, STREAM_ENDED, DEADLINE_EXCEEDED,
   *   CANCELLED
   */
  async dial(destination: SeamDestination, { signal }: SignalOptions): Promise<PacketStream> {
    const { lane, end, ticket } = destination;
    const options = { signal, timeoutMs: HANDSHAKE_MS };
    const stream = await this.#host.open(destination, SEAM, options).catch((err: unknown) => {
      throw unreachable(err);
    });
    await stream.write(BridgeOpenSchema, {
      version: BRIDGE_VERSION, lane: { session: lane.session, epoch: lane.epoch, stage: lane.stage }, end, ticket,
    }, options);
    const { error } = await stream.read(BridgeReadySchema, READY_BYTES, options);
    if (error !== undefined) {
      void stream.close({ timeoutMs: HANDSHAKE_MS });
      throw fromWireError(error);
    }
    return packetStream(stream);
  }

  /** Serves bridged seams of other nodes. */
  async handle(handler: BridgeHandler): Promise<void> {
    await this.#host.handle(SEAM, (stream) => serve(stream, handler));
  }
}

async function serve(stream: MessageStream, handler: BridgeHandler): Promise<void> {
  let carry: (packets: PacketStream) => Promise<void>;
  try {
    const open = await stream.read(BridgeOpenSchema, OPEN_BYTES, { timeoutMs: HANDSHAKE_MS });
    checkLane(open.lane);
    checkEnd(open.end);
    carry = await handler(open, stream.remotePeer);
  } catch (err) {
    if (stream.open) {
      await stream.write(BridgeReadySchema, { error: toWireError(err) }, { timeoutMs: HANDSHAKE_MS });
      await stream.close({ timeoutMs: HANDSHAKE_MS });
    }
    throw err;
  }
  await stream.write(BridgeReadySchema, {}, { timeoutMs: HANDSHAKE_MS });
  await carry(packetStream(stream));
}

function packetStream(stream: MessageStream): PacketStream {
  return {
    path: stream.path,
    remotePeer: stream.remotePeer,
    read: () => packetsOf(stream),
    write: (packet, options) => stream.writeBytes(packet, options),
    close: (options) => stream.closeWrite(options),
    abort: (err) => stream.abort(toMeshnetError(err)),
  };
}

async function* packetsOf(stream: MessageStream): AsyncGenerator<Uint8Array> {
  const untilStreamEnds = { signal: new AbortController().signal };
  let ended = false;
  try {
    for (;;) {
      const packet = await stream.readBytes(LIMITS.packetBytes, untilStreamEnds);
      if (packet === undefined) {
        ended = true;
        return;
      }
      yield packet;
    }
  } finally {
    if (!ended) {
      stream.abort(new MeshnetError('CANCELLED', 'nobody reads this seam any more'));
    }
  }
}

function unreachable(err: unknown): MeshnetError {
  const error = toMeshnetError(err);
  return error.code === 'PEER_UNREACHABLE'
    ? new MeshnetError('SEAM_UNREACHABLE', 'no bridge to the other node', { cause: error, details: error.details })
    : error;
}
