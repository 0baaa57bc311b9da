/** The messages of proto/seam.proto and proto/peer.proto, field by field. */
import type { Message } from './codec.ts';

export const Lane = {
  session: { no: 1, kind: 'bytes' },
  epoch: { no: 2, kind: 'uint32' },
  stage: { no: 3, kind: 'uint32' },
} as const;

export const Tensor = {
  name: { no: 1, kind: 'string' },
  dtype: { no: 2, kind: 'enum' },
  shape: { no: 3, kind: 'uint32', many: true },
  data: { no: 4, kind: 'bytes' },
} as const;

export const StageTimes = {
  queueUs: { no: 1, kind: 'uint32' },
  computeUs: { no: 2, kind: 'uint32' },
  serializeUs: { no: 3, kind: 'uint32' },
} as const;

export const TokenLogprobs = {
  logprob: { no: 1, kind: 'float' },
  topIds: { no: 2, kind: 'int32', many: true },
  topLogprobs: { no: 3, kind: 'float', many: true },
} as const;

export const BoundaryTensor = {
  name: { no: 1, kind: 'string' },
  width: { no: 2, kind: 'uint32' },
  prefillDtype: { no: 3, kind: 'enum' },
  decodeDtype: { no: 4, kind: 'enum' },
} as const;

export const Limits = {
  maxPacketBytes: { no: 1, kind: 'uint32' },
  maxFramePayloadBytes: { no: 2, kind: 'uint32' },
  maxChunkTokens: { no: 3, kind: 'uint32' },
  maxPositions: { no: 4, kind: 'uint32' },
} as const;

export const Open = {
  version: { no: 1, kind: 'uint32' },
  minVersion: { no: 2, kind: 'uint32' },
  role: { no: 3, kind: 'enum' },
  attempt: { no: 4, kind: 'uint32' },
  modelDigest: { no: 5, kind: 'bytes' },
  layerFirst: { no: 6, kind: 'uint32' },
  layerLast: { no: 7, kind: 'uint32' },
  boundary: { no: 8, kind: BoundaryTensor, many: true },
  limits: { no: 9, kind: Limits },
  creditBytes: { no: 10, kind: 'uint64' },
  nextSeq: { no: 11, kind: 'uint64' },
  packing: { no: 12, kind: 'bool' },
} as const;

export const Opened = {
  version: { no: 1, kind: 'uint32' },
  attempt: { no: 2, kind: 'uint32' },
  layerFirst: { no: 3, kind: 'uint32' },
  layerLast: { no: 4, kind: 'uint32' },
  limits: { no: 5, kind: Limits },
  creditBytes: { no: 6, kind: 'uint64' },
  nextSeq: { no: 7, kind: 'uint64' },
  packing: { no: 8, kind: 'bool' },
} as const;

export const LogitBias = { token: { no: 1, kind: 'int32' }, bias: { no: 2, kind: 'float' } } as const;

export const Sampling = {
  temperature: { no: 1, kind: 'float' },
  topP: { no: 2, kind: 'float' },
  topK: { no: 3, kind: 'uint32' },
  minP: { no: 4, kind: 'float' },
  presencePenalty: { no: 5, kind: 'float' },
  frequencyPenalty: { no: 6, kind: 'float' },
  seed: { no: 7, kind: 'uint64' },
  logitBias: { no: 8, kind: LogitBias, many: true },
} as const;

export const Turn = {
  turn: { no: 1, kind: 'uint32' },
  start: { no: 2, kind: 'uint32' },
  nTokens: { no: 3, kind: 'uint32' },
  maxTokens: { no: 4, kind: 'uint32' },
  sampling: { no: 5, kind: Sampling },
  grammar: { no: 6, kind: 'string' },
  logprobs: { no: 7, kind: 'sint32' },
  ignoreEnd: { no: 8, kind: 'bool' },
} as const;

export const TurnTokens = {
  turn: { no: 1, kind: 'uint32' },
  ids: { no: 2, kind: 'int32', many: true },
  last: { no: 3, kind: 'bool' },
} as const;

export const Credit = { bytes: { no: 1, kind: 'uint64' } } as const;
export const Cancel = { turn: { no: 1, kind: 'uint32' } } as const;
export const Detail = { key: { no: 1, kind: 'string' }, value: { no: 2, kind: 'string' } } as const;

export const WireError = {
  code: { no: 1, kind: 'enum' },
  message: { no: 2, kind: 'string' },
  faultStage: { no: 3, kind: 'uint32' },
  details: { no: 4, kind: Detail, many: true },
  retryAfterMs: { no: 5, kind: 'uint32' },
} as const;

export const Close = { nFrames: { no: 1, kind: 'uint64' }, digest: { no: 2, kind: 'bytes' } } as const;

export const Frame = {
  lane: { no: 1, kind: Lane },
  seq: { no: 2, kind: 'uint64' },
  branch: { no: 3, kind: 'uint32' },
  group: { no: 4, kind: 'uint64' },
  groupSize: { no: 5, kind: 'uint32' },
  phase: { no: 6, kind: 'enum' },
  pos: { no: 7, kind: 'uint32' },
  nTokens: { no: 8, kind: 'uint32' },
  tokens: { no: 9, kind: 'int32', many: true },
  tensors: { no: 10, kind: Tensor, many: true },
  ack: { no: 11, kind: 'uint64' },
  chunkEnd: { no: 12, kind: 'bool' },
  times: { no: 13, kind: StageTimes, many: true },
  logprobs: { no: 14, kind: TokenLogprobs, many: true },
  finish: { no: 15, kind: 'enum' },
  open: { no: 16, kind: Open },
  opened: { no: 17, kind: Opened },
  turn: { no: 18, kind: Turn },
  turnTokens: { no: 19, kind: TurnTokens },
  credit: { no: 20, kind: Credit },
  cancel: { no: 21, kind: Cancel },
  error: { no: 22, kind: WireError },
  close: { no: 23, kind: Close },
} as const;
export type Frame = Message<typeof Frame>;

/** Frames stay bytes here: digests are over what was sent, not over what a codec makes of it. */
export const Packet = { frames: { no: 1, kind: 'bytes', many: true } } as const;

export const TensorEntry = {
  name: { no: 1, kind: 'string' },
  type: { no: 2, kind: 'uint32' },
  dims: { no: 3, kind: 'uint64', many: true },
  offset: { no: 4, kind: 'uint64' },
  bytes: { no: 5, kind: 'uint64' },
  chunkSha256: { no: 6, kind: 'bytes' },
} as const;

export const Manifest = {
  version: { no: 1, kind: 'uint32' },
  headerSha256: { no: 2, kind: 'bytes' },
  headerBytes: { no: 3, kind: 'uint64' },
  fileBytes: { no: 4, kind: 'uint64' },
  fileSha256: { no: 5, kind: 'bytes' },
  architecture: { no: 6, kind: 'string' },
  nLayer: { no: 7, kind: 'uint32' },
  chunkBytes: { no: 8, kind: 'uint32' },
  tensors: { no: 9, kind: TensorEntry, many: true },
} as const;

export const Advertisement = {
  version: { no: 1, kind: 'uint32' },
  peerId: { no: 2, kind: 'string' },
  modelDigest: { no: 3, kind: 'bytes' },
  layerFirst: { no: 4, kind: 'uint32' },
  layerLast: { no: 5, kind: 'uint32' },
  nLayer: { no: 6, kind: 'uint32' },
  engineClass: { no: 7, kind: 'string' },
  boundaryIn: { no: 8, kind: BoundaryTensor, many: true },
  boundaryOut: { no: 9, kind: BoundaryTensor, many: true },
  bootId: { no: 10, kind: 'bytes' },
  sequence: { no: 11, kind: 'uint64' },
  addresses: { no: 12, kind: 'string', many: true },
  seamEndpoints: { no: 13, kind: 'string', many: true },
  seamCertificateSha256: { no: 14, kind: 'bytes' },
  decodeUs: { no: 15, kind: 'uint32' },
  prefillUs: { no: 16, kind: 'uint32' },
  lanes: { no: 17, kind: 'uint32' },
  sequencesFree: { no: 18, kind: 'uint32' },
  cellsFree: { no: 19, kind: 'uint32' },
  maxChunkTokens: { no: 20, kind: 'uint32' },
  coordinate: { no: 21, kind: 'float', many: true },
  expiresAtMs: { no: 22, kind: 'uint64' },
  health: { no: 23, kind: 'enum' },
  lanesResting: { no: 24, kind: 'uint32' },
  cellsResting: { no: 25, kind: 'uint32' },
} as const;
export type Advertisement = Message<typeof Advertisement>;

export const SignedAdvertisement = {
  advertisement: { no: 1, kind: 'bytes' },
  signature: { no: 2, kind: 'bytes' },
} as const;
export type SignedAdvertisement = Message<typeof SignedAdvertisement>;

export const DirectoryRequest = {
  modelDigest: { no: 1, kind: 'bytes' },
  layerFirst: { no: 2, kind: 'uint32' },
  layerLast: { no: 3, kind: 'uint32' },
} as const;

export const DirectoryReply = {
  advertisements: { no: 1, kind: SignedAdvertisement, many: true },
  error: { no: 2, kind: WireError },
} as const;

export const SeamWish = { end: { no: 1, kind: 'enum' }, peerId: { no: 2, kind: 'string' } } as const;

export const Admit = {
  version: { no: 1, kind: 'uint32' },
  lane: { no: 2, kind: Lane },
  nStages: { no: 3, kind: 'uint32' },
  modelDigest: { no: 4, kind: 'bytes' },
  layerFirst: { no: 5, kind: 'uint32' },
  layerLast: { no: 6, kind: 'uint32' },
  positions: { no: 7, kind: 'uint32' },
  deadlineMs: { no: 8, kind: 'uint32' },
  seams: { no: 9, kind: SeamWish, many: true },
  prefillDtype: { no: 10, kind: 'enum' },
  decodeDtype: { no: 11, kind: 'enum' },
} as const;

export const Link = {
  end: { no: 1, kind: 'enum' },
  advertisement: { no: 2, kind: SignedAdvertisement },
  seamCertificate: { no: 3, kind: 'bytes' },
  ticket: { no: 4, kind: 'bytes' },
  dial: { no: 5, kind: 'bool' },
  attempt: { no: 6, kind: 'uint32' },
  deadlineMs: { no: 7, kind: 'uint32' },
  peerLane: { no: 8, kind: Lane },
} as const;

export const AdmitRequest = {
  admit: { no: 1, kind: Admit },
  link: { no: 2, kind: Link },
  keepAlive: { no: 3, kind: {} },
  release: { no: 4, kind: { reason: { no: 1, kind: 'enum' } } },
} as const;

export const SeamTicket = { end: { no: 1, kind: 'enum' }, ticket: { no: 2, kind: 'bytes' } } as const;

export const Admitted = {
  tickets: { no: 1, kind: SeamTicket, many: true },
  seamCertificate: { no: 2, kind: 'bytes' },
  positions: { no: 3, kind: 'uint32' },
  leaseTtlMs: { no: 4, kind: 'uint32' },
  maxChunkTokens: { no: 5, kind: 'uint32' },
} as const;
export type Admitted = Message<typeof Admitted>;

export const Linked = {
  end: { no: 1, kind: 'enum' },
  path: { no: 2, kind: 'enum' },
  rttUs: { no: 3, kind: 'uint32' },
} as const;

export const AdmitReply = {
  admitted: { no: 1, kind: Admitted },
  error: { no: 2, kind: WireError },
  linked: { no: 3, kind: Linked },
  released: { no: 4, kind: {} },
} as const;

export const BridgeOpen = {
  version: { no: 1, kind: 'uint32' },
  lane: { no: 2, kind: Lane },
  end: { no: 3, kind: 'enum' },
  ticket: { no: 4, kind: 'bytes' },
} as const;

export const BridgeReady = { error: { no: 1, kind: WireError } } as const;

export const DType = { F32: 1, F16: 2, Q8_0: 3 } as const;
export const Phase = { PREFILL: 1, DECODE: 2, LOOP: 3 } as const;
export const Finish = { END: 1, MAX_TOKENS: 2, CONTEXT_FULL: 3, CANCELLED: 4 } as const;
export const Role = { ENTRY: 1, UPSTREAM: 2, DOWNSTREAM: 3, LOOP_TAIL: 4, LOOP_HEAD: 5 } as const;
export const SeamEnd = { ENTRY: 1, TO_NEXT: 2, TO_PREVIOUS: 3, LOOP: 4 } as const;
export const PathKind = { DIRECT_GRPC: 1, LIBP2P: 2, WEBRTC: 3, RELAY: 4, LOCAL: 5 } as const;
