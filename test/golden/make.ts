/**
 * Writes the golden files beside itself: `node test/golden/make.ts`. They were made once, with a codec that shares
 * nothing with src/ and native-worker/, and both read them; running this again must not change a byte.
 */
import { createPrivateKey, sign } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { encode, type Init, type Table } from '../mesh/spec-client/codec.ts';
import { Advertisement, Frame, Manifest, Packet, SignedAdvertisement } from '../mesh/spec-client/messages.ts';
import { peerIdOf, bytesOf, floats, halves, quants, sha256 } from './values.ts';

export interface Entry {
  file: string;
  /** Full name of the message that the file holds. */
  message: string;
  sha256: string;
  /** The message in protobuf's JSON mapping, enums as numbers, without defaults. */
  fields: unknown;
}

const session = bytesOf('session', 16);
const lane = { session, epoch: 3, stage: 1 };
const head = { ...lane, stage: 0 };
const WIDTH = 32;
const boundary = [{ name: 'residual', width: WIDTH, prefillDtype: 2, decodeDtype: 1 }];
const limits = { maxPacketBytes: 1_048_576, maxFramePayloadBytes: 262_144, maxChunkTokens: 64, maxPositions: 96 };
const modelDigest = sha256(encode(Manifest, manifest()));

const turn: Init<typeof Frame> = {
  lane: head,
  seq: 1n,
  turn: {
    turn: 1,
    start: 4,
    nTokens: 3,
    maxTokens: 16,
    sampling: {
      temperature: 0.75,
      topP: 0.875,
      topK: 40,
      minP: 0.0625,
      presencePenalty: -0.5,
      frequencyPenalty: 1.25,
      seed: 0xfedcba9876543210n,
      logitBias: [
        { token: 7, bias: -100 },
        { token: 0, bias: 2.5 },
      ],
    },
    grammar: 'root ::= "yes" | "no"',
    logprobs: -1,
    ignoreEnd: true,
  },
};
const turnTokens: Init<typeof Frame> = {
  lane: head,
  seq: 2n,
  ack: 9n,
  turnTokens: { turn: 1, ids: [0, 127, 128, 16_384, 49_151], last: true },
};

/** Two positions of the boundary, 4 … 5, as `data` in `dtype`. */
function prefill(dtype: number, data: Uint8Array): Init<typeof Frame> {
  const tensors = [{ name: 'residual', dtype, shape: [2, WIDTH], data }];
  return { lane, seq: 300n, branch: 2, group: 70_000n, groupSize: 1, phase: 1, pos: 4, nTokens: 2, tensors, chunkEnd: true };
}

const frames: Record<string, Init<typeof Frame>> = {
  open: {
    lane,
    open: {
      version: 1,
      minVersion: 1,
      role: 2,
      attempt: 2,
      modelDigest,
      layerFirst: 0,
      layerLast: 1,
      boundary,
      limits,
      creditBytes: 1n << 20n,
      nextSeq: 301n,
      packing: true,
    },
  },
  opened: {
    lane,
    opened: { version: 1, attempt: 2, layerFirst: 1, layerLast: 2, limits, creditBytes: 3_000_000_000n, nextSeq: 1n },
  },
  turn,
  'turn-tokens': turnTokens,
  'prefill-f32': prefill(1, floats(2 * WIDTH)),
  'prefill-f16': prefill(2, halves(2 * WIDTH)),
  'prefill-q8_0': prefill(3, quants(2)),
  decode: {
    lane,
    seq: 4_294_967_296n,
    branch: 2,
    group: 9n,
    groupSize: 4,
    phase: 2,
    pos: 6,
    nTokens: 1,
    tensors: [{ name: 'residual', dtype: 1, shape: [1, WIDTH], data: floats(WIDTH) }],
    ack: 12n,
    chunkEnd: true,
    times: [{ queueUs: 15, computeUs: 20_000, serializeUs: 3 }],
  },
  loop: {
    lane: head,
    seq: 17n,
    branch: 2,
    group: 9n,
    groupSize: 4,
    phase: 3,
    pos: 7,
    nTokens: 1,
    tokens: [49_151],
    ack: 2n,
    times: [{ queueUs: 15, computeUs: 20_000, serializeUs: 3 }, { computeUs: 21_000 }],
    logprobs: [{ logprob: -0.125, topIds: [49_151, 0, 300], topLogprobs: [-0.125, -2.5, -1024] }],
    finish: 2,
  },
  ack: { lane, ack: 18_446_744_073_709_551_615n },
  credit: { lane, credit: { bytes: 131_072n } },
  cancel: { lane: head, seq: 3n, branch: 2, cancel: { turn: 1 } },
  error: {
    lane,
    ack: 5n,
    error: {
      code: 31,
      message: 'no cells are free – später noch einmal',
      faultStage: 1,
      details: [
        { key: 'required', value: '96' },
        { key: 'available', value: '12' },
      ],
      retryAfterMs: 1500,
    },
  },
  close: {
    lane: head,
    seq: 3n,
    close: { nFrames: 2n, digest: sha256(encode(Frame, turn), encode(Frame, turnTokens)) },
  },
};

function manifest(): Init<typeof Manifest> {
  const chunkBytes = 65_536;
  const headerBytes = 1024;
  let offset = headerBytes;
  const entry = (name: string, dims: number[]) => {
    const bytes = 4 * dims.reduce((product, dim) => product * dim, 1);
    const nChunks = Math.ceil(bytes / chunkBytes);
    const chunkSha256 = Buffer.concat(Array.from({ length: nChunks }, (_, i) => sha256(bytesOf(`${name} ${i}`, 8))));
    const tensor = { name, type: 0, dims: dims.map(BigInt), offset: BigInt(offset), bytes: BigInt(bytes), chunkSha256 };
    offset += bytes;
    return tensor;
  };
  const tensors = [
    entry('token_embd.weight', [32, 600]),
    entry('blk.0.attn_norm.weight', [32]),
    entry('blk.0.ffn_down.weight', [64, 32]),
    entry('blk.1.attn_norm.weight', [32]),
    entry('blk.1.ffn_down.weight', [64, 32]),
    entry('output_norm.weight', [32]),
  ];
  return {
    version: 1,
    headerSha256: sha256(bytesOf('header', 8)),
    headerBytes: BigInt(headerBytes),
    fileBytes: BigInt(offset),
    fileSha256: sha256(bytesOf('file', 8)),
    architecture: 'llama',
    nLayer: 2,
    chunkBytes,
    tensors,
  };
}

/** An Ed25519 key that everybody may know, and the peer id that contains its public half. */
const KEY = createPrivateKey({
  key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), bytesOf('key', 32)]),
  format: 'der',
  type: 'pkcs8',
});

function advertisement(): Init<typeof Advertisement> {
  const peerId = peerIdOf(KEY);
  return {
    version: 1,
    peerId,
    modelDigest,
    layerFirst: 0,
    layerLast: 1,
    nLayer: 2,
    engineClass: 'golden/cpu/f16',
    boundaryOut: boundary,
    bootId: Buffer.concat([Buffer.from('0000018bcfe56800', 'hex'), bytesOf('boot', 8)]),
    sequence: 41n,
    addresses: [`/ip4/127.0.0.1/tcp/4001/p2p/${peerId}`],
    seamEndpoints: ['127.0.0.1:4002', '[::1]:4002'],
    seamCertificateSha256: sha256(bytesOf('certificate', 8)),
    decodeUs: 8500,
    prefillUs: 900,
    lanes: 4,
    sequencesFree: 12,
    cellsFree: 4096,
    maxChunkTokens: 64,
    coordinate: [0.5, -1.25, 3],
    expiresAtMs: 1_700_000_600_000n,
    health: 1,
  };
}

/** File name → bytes, index.json among them. */
export function goldenFiles(): Map<string, Uint8Array> {
  const files = new Map<string, Uint8Array>();
  const index: Entry[] = [];
  const add = (name: string, message: string, bytes: Uint8Array, fields: unknown): void => {
    files.set(`${name}.bin`, bytes);
    index.push({ file: `${name}.bin`, message, sha256: Buffer.from(sha256(bytes)).toString('hex'), fields });
  };
  for (const [name, frame] of Object.entries(frames)) {
    const packet = encode(Packet, { frames: [encode(Frame, frame)] });
    add(name, 'meshnet.seam.v1.Packet', packet, { frames: [json(Frame, frame)] });
  }
  add('manifest', 'meshnet.peer.v1.Manifest', encode(Manifest, manifest()), json(Manifest, manifest()));
  const said = encode(Advertisement, advertisement());
  add('advertisement', 'meshnet.peer.v1.Advertisement', said, json(Advertisement, advertisement()));
  const signature = sign(null, Buffer.concat([Buffer.from('meshnet-advertisement-v1\0', 'ascii'), said]), KEY);
  const signed = { advertisement: said, signature };
  add(
    'signed-advertisement',
    'meshnet.peer.v1.SignedAdvertisement',
    encode(SignedAdvertisement, signed),
    json(SignedAdvertisement, signed),
  );
  return files.set('index.json', Buffer.from(`${JSON.stringify(index, null, 1)}\n`));
}

function json<T extends Table>(table: T, message: Init<T>): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const [name, { kind, many }] of Object.entries(table)) {
    const value = message[name] as unknown;
    const one = (each: unknown): unknown => (typeof kind === 'string' ? scalar(each) : json(kind, each as Init<Table>));
    if (many && Array.isArray(value) && value.length > 0) {
      result[name] = value.map(one);
    } else if (!many && value !== undefined && (typeof kind !== 'string' || Boolean(value))) {
      result[name] = one(value);
    }
  }
  return result;
}

function scalar(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    return Buffer.from(value).toString('base64');
  }
  return typeof value === 'bigint' ? value.toString() : value;
}

if (process.argv[1] === import.meta.filename) {
  for (const [name, bytes] of goldenFiles()) {
    writeFileSync(join(import.meta.dirname, name), bytes);
  }
}
