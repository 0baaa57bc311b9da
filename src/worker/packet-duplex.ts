import type { LaneKey } from '../domain/lane.ts';
import type { PathKind, SeamEnd } from '../proto/peer_pb.js';

export interface AbortOptions {
  signal: AbortSignal;
}

/** Whole packets in both directions, as opaque bytes with backpressure: what a bridge carries. */
export interface PacketDuplex {
  /** How the packets travel. */
  readonly path: PathKind;
  /** Packets in order. Ends when the other side has closed; throws when the stream broke. Iterated once. */
  read(): AsyncIterable<Uint8Array>;
  /** Resolves when there is room for another packet. The bytes belong to the stream from then on. */
  write(packet: Uint8Array, options: AbortOptions): Promise<void>;
  /** No more packets from this side; those already written still arrive. */
  close(options: AbortOptions): Promise<void>;
  /** Drops the stream in both directions at once. */
  abort(err: Error): void;
}

/** The lane at the other node that a bridged stream is for. */
export interface BridgeDestination {
  readonly peerId: string;
  /** Multiaddrs from the peer's signed advertisement. */
  readonly addresses: readonly string[];
  readonly lane: LaneKey;
  readonly end: SeamEnd;
  /** Issued by the other end. */
  readonly ticket: Uint8Array;
}

export interface PacketDialer {
  /** Resolves when the other node is ready for packets; throws what it refused with, or SEAM_UNREACHABLE. */
  dial(destination: BridgeDestination, options: AbortOptions): Promise<PacketDuplex>;
}
