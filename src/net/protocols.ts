/** Our own DHT, never the public one. */
export const KAD_PROTOCOL = '/meshnet/kad/1.0.0';

/** A peer to dial. Without addresses, an open connection, what is known of it or the DHT serve. */
export interface PeerTarget {
  readonly peerId: string;
  /** Multiaddrs, with or without the peer id at their end. */
  readonly addresses?: readonly string[];
}

/** A protocol of ours and what it may use. */
export interface ProtocolSpec {
  readonly id: string;
  /** Per connection. */
  readonly maxInboundStreams: number;
  /** Per connection. */
  readonly maxOutboundStreams: number;
  /** Inbound, over all connections of one peer: several connections buy nothing. */
  readonly maxStreamsPerPeer: number;
  /** Inbound, over all peers. */
  readonly maxStreams: number;
}
