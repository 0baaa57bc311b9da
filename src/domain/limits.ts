/**
 * Every size, count and time on the wire that a peer controls, once. SPEC.md's limits table is held against this file.
 * Sizes in bytes, times in milliseconds.
 */
export const LIMITS = Object.freeze({
  /** One Packet of a seam; also the cap of every length-prefixed message on the bridge. */
  packetBytes: 1024 * 1024,
  /** Tensor payload of one Frame. */
  framePayloadBytes: 256 * 1024,
  /** Tensors of one Frame, and their rank. */
  tensorsPerFrame: 8,
  tensorRank: 4,
  /** Prompt ids of one TurnTokens. */
  tokensPerPiece: 16_384,
  /** GBNF text of a Turn. */
  grammarBytes: 64 * 1024,
  /** Alternatives per token. */
  topLogprobs: 20,
  logitBias: 1024,
  /** Stages of a route, and so the entries of Frame.times. */
  stagesPerRoute: 16,
  errorMessageBytes: 512,
  errorDetails: 8,
  sessionBytes: 16,
  ticketBytes: 32,
  digestBytes: 32,
  seamCertificateBytes: 1024,
  advertisementBytes: 1024,
  addressesPerAdvertisement: 4,
  endpointsPerAdvertisement: 4,
  /** Advertisements of one directory answer, and its bytes. */
  advertisementsPerReply: 64,
  directoryReplyBytes: 128 * 1024,
  directoryRequestBytes: 256,
  /** One message of the admission stream. */
  admitMessageBytes: 8 * 1024,
  /** Chunk of a header transfer, and what may be transferred in all. */
  headerChunkBytes: 256 * 1024,
  manifestBytes: 64 * 1024 * 1024,
  headerBytes: 256 * 1024 * 1024,
  layersPerModel: 1024,
  tensorsPerModel: 65_536,
  /** An advertisement may not promise more than this ahead. */
  advertisementLifeMs: 15 * 60_000,
  /** Reserved by admission without a Link. */
  admitHoldMs: 10_000,
  /** A lease ends after this much silence; a seeker speaks three times as often. */
  leaseTtlMs: 30_000,
});
