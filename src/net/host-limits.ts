import { LIMITS } from '../domain/limits.ts';

/** What a stranger may take of this node. Bytes and milliseconds. */
export const HOST_LIMITS = Object.freeze({
  /** Each holds some sockets and a few MiB at worst; a volunteer's router and memory bear this many. */
  connections: 96,
  /** Beyond the connections that libp2p keeps, so that it can refuse with a reason instead of in the kernel. */
  sockets: 128,
  /** Handshakes at once; the whole of a small mesh that comes back together. */
  pendingInbound: 16,
  /** New connections per second of one address. */
  inboundPerSecond: 5,
  /** The same when all nodes share one address, as in a private network or a lab. */
  inboundPerSecondPrivate: 100,
  /** Connections of one IPv4 /24 or IPv6 /48. */
  connectionsPerNetwork: 16,
  parallelDials: 16,
  queuedDials: 256,
  /** An advertisement has 4, a DHT answer may have more. */
  addressesPerDial: 8,
  dialMs: 10_000,
  addressDialMs: 5000,
  /** A handshake that takes longer is a slow loris. */
  inboundUpgradeMs: 10_000,
  protocolNegotiationMs: 10_000,
  connectionCloseMs: 1000,
  /** A TCP connection without a byte; pings keep a live one busy. */
  inboundSilenceMs: 60_000,
  /** How often a connection is pinged; one that does not answer is closed, which ends every lease on it. */
  pingMs: 10_000,
  pingTimeoutMs: 10_000,
  /** All protocols of one connection together. */
  streamsPerConnection: 1024,
  /** Streams before the handshake is done on both sides; beyond it libp2p closes the connection. A gateway that has just
   * found a busy provider admits several sessions at once. */
  earlyStreams: 64,
  /** One stream window: what may be on its way unasked. A whole packet fits. */
  streamWindow: LIMITS.packetBytes,
  /** Above the window, or a paused stream is reset. */
  streamReadBuffer: 2 * LIMITS.packetBytes,
  /** Above the largest message plus what waits, or a slow reader's stream is reset. */
  streamWriteBuffer: 4 * LIMITS.packetBytes,
  /** A yamux data frame: small, so that a decode step does not wait behind a whole packet. */
  muxerMessage: 64 * 1024,
  identifyBytes: 8192,
  identifyMs: 5000,
  observedAddresses: 8,
  /** Streams of the DHT on one connection. */
  dhtInboundStreams: 32,
  dhtOutboundStreams: 64,
});
