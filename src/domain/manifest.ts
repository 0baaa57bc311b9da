/**
 * The checkable identity of a model. Two holders of the same GGUF file make the same manifest, and its SHA-256 is the
 * model digest by which peers speak of the model.
 */
import { createHash } from 'node:crypto';
import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import { equals } from 'uint8arrays/equals';
import { MeshnetError } from '../errors.ts';
import { ManifestSchema } from '../proto/peer_pb.js';
import { LIMITS } from './limits.ts';
import type { LayerRange } from './shard.ts';
import { tensorBytes } from './tensor-type.ts';

export const MANIFEST_VERSION = 1;
/** Bytes of a chunk in manifests that this program makes. */
export const CHUNK_BYTES = 1024 * 1024;
const MIN_CHUNK_BYTES = 64 * 1024;
const MAX_CHUNK_BYTES = 64 * 1024 * 1024;
const MAX_DIMS = 4;
const NO_BYTES: Uint8Array = new Uint8Array();

export interface Manifest {
  readonly version: number;
  /** Of the file's bytes `[0, headerBytes)`. */
  readonly headerSha256: Uint8Array;
  readonly headerBytes: number;
  readonly fileBytes: number;
  readonly fileSha256: Uint8Array;
  readonly architecture: string;
  readonly nLayer: number;
  readonly chunkBytes: number;
  /** In file order. */
  readonly tensors: readonly TensorEntry[];
}

export interface TensorEntry {
  readonly name: string;
  /** ggml type number. */
  readonly type: number;
  /** ggml order: the first is contiguous. */
  readonly dims: readonly number[];
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
  /** 32 bytes a chunk, concatenated. */
  readonly chunkSha256: Uint8Array;
}

/** Canonical bytes: fields in number order, defaults left out, dims packed. */
export function encodeManifest(manifest: Manifest): Uint8Array {
  return toBinary(ManifestSchema, create(ManifestSchema, {
    ...manifest,
    headerBytes: BigInt(manifest.headerBytes),
    fileBytes: BigInt(manifest.fileBytes),
    tensors: manifest.tensors.map((tensor) => ({
      ...tensor,
      dims: tensor.dims.map(BigInt),
      offset: BigInt(tensor.offset),
      bytes: BigInt(tensor.bytes),
    })),
  }));
}

/**
 * Reads what a peer or a file says is a manifest. Digests in the result share memory with `bytes`.
 *
 * @throws {MeshnetError} MALFORMED when the bytes are not canonical or contradict themselves, LIMIT_EXCEEDED when they
 * are too many or list too much, VERSION_UNSUPPORTED
 */
export function decodeManifest(bytes: Uint8Array): Manifest {
  if (bytes.length > LIMITS.manifestBytes) {
    throw exceeded('manifest', bytes.length, LIMITS.manifestBytes);
  }
  let manifest: Manifest;
  try {
    manifest = readManifest(new BinaryReader(bytes));
  } catch (cause) {
    throw cause instanceof MeshnetError ? cause : malformed('manifest', {}, { cause });
  }
  checkManifest(manifest);
  // Field order, repeated scalars, overlong varints, spelled-out defaults and broken UTF-8 all show up here.
  if (!equals(encodeManifest(manifest), bytes)) {
    throw malformed('encoding');
  }
  return manifest;
}

/** SHA-256 of the canonical encoding. */
export function modelDigest(manifestBytes: Uint8Array): Uint8Array {
  return createHash('sha256').update(manifestBytes).digest();
}

/** How many chunks, and so digests, a tensor has. */
export function chunkCount(tensorSize: number, chunkBytes: number): number {
  return Math.ceil(tensorSize / chunkBytes);
}

/** N of `blk.N.…`; undefined for a tensor that belongs to no block. */
export function blockIndex(name: string): number | undefined {
  const match = /^blk\.(0|[1-9]\d{0,8})\./.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** Read on the way in, by whoever holds layer 0. */
const INPUT_TENSORS = /^(token_embd|position_embd|token_types|per_layer_token_embd)\./;
/** One table that every block reads. */
const SHARED_TENSORS = /^rope_(freqs|factors_long|factors_short)\./;
const TOKEN_EMBEDDING = 'token_embd.weight';
const OUTPUT_HEAD = 'output.weight';

/**
 * The tensors that a shard of these layers loads, in file order: its blocks; the input tensors for the head; everything
 * else for the tail, the token embedding included when the model has no output head of its own; the RoPE tables for all.
 */
export function tensorsOfRange(manifest: Manifest, range: LayerRange): TensorEntry[] {
  const isHead = range.first === 0;
  const isTail = range.last === manifest.nLayer;
  const tied = !manifest.tensors.some(({ name }) => name === OUTPUT_HEAD);
  return manifest.tensors.filter(({ name }) => {
    const block = blockIndex(name);
    if (block !== undefined) {
      return block >= range.first && block < range.last;
    }
    if (SHARED_TENSORS.test(name)) {
      return true;
    }
    if (INPUT_TENSORS.test(name)) {
      return isHead || (isTail && tied && name === TOKEN_EMBEDDING);
    }
    return isTail;
  });
}

/** Bytes of the tensors that a shard of these layers loads. */
export function rangeBytes(manifest: Manifest, range: LayerRange): number {
  return tensorsOfRange(manifest, range).reduce((sum, tensor) => sum + tensor.bytes, 0);
}

function readManifest(reader: BinaryReader): Manifest {
  const tensors: TensorEntry[] = [];
  const found = {
    version: 0,
    headerSha256: NO_BYTES,
    headerBytes: 0,
    fileBytes: 0,
    fileSha256: NO_BYTES,
    architecture: '',
    nLayer: 0,
    chunkBytes: 0,
    tensors,
  };
  while (reader.pos < reader.len) {
    switch (fieldOf(reader, [1, 3, 4, 7, 8])) {
      case 1: found.version = reader.uint32(); break;
      case 2: found.headerSha256 = reader.bytes(); break;
      case 3: found.headerBytes = integer(reader, 'header_bytes'); break;
      case 4: found.fileBytes = integer(reader, 'file_bytes'); break;
      case 5: found.fileSha256 = reader.bytes(); break;
      case 6: found.architecture = reader.string(); break;
      case 7: found.nLayer = reader.uint32(); break;
      case 8: found.chunkBytes = reader.uint32(); break;
      case 9:
        if (tensors.length === LIMITS.tensorsPerModel) {
          throw exceeded('tensors', tensors.length + 1, LIMITS.tensorsPerModel);
        }
        tensors.push(readTensor(new BinaryReader(reader.bytes())));
        break;
      default: throw malformed('unknown field');
    }
  }
  return found;
}

function readTensor(reader: BinaryReader): TensorEntry {
  let dims: number[] = [];
  const found = { name: '', type: 0, offset: 0, bytes: 0, chunkSha256: NO_BYTES };
  while (reader.pos < reader.len) {
    switch (fieldOf(reader, [2, 4, 5])) {
      case 1: found.name = reader.string(); break;
      case 2: found.type = reader.uint32(); break;
      case 3: dims = readDims(new BinaryReader(reader.bytes())); break;
      case 4: found.offset = integer(reader, 'offset'); break;
      case 5: found.bytes = integer(reader, 'bytes'); break;
      case 6: found.chunkSha256 = reader.bytes(); break;
      default: throw malformed('unknown field');
    }
  }
  return { ...found, dims };
}

function readDims(reader: BinaryReader): number[] {
  const dims: number[] = [];
  while (reader.pos < reader.len) {
    if (dims.length === MAX_DIMS) {
      throw malformed('dims');
    }
    dims.push(integer(reader, 'dims'));
  }
  return dims;
}

/** The next field's number, its wire type checked. */
function fieldOf(reader: BinaryReader, varints: readonly number[]): number {
  const [field, wireType] = reader.tag();
  if (wireType !== (varints.includes(field) ? WireType.Varint : WireType.LengthDelimited)) {
    throw malformed('wire type', { number: field });
  }
  return field;
}

function integer(reader: BinaryReader, field: string): number {
  const value = Number(reader.uint64());
  if (!Number.isSafeInteger(value)) {
    throw malformed(field);
  }
  return value;
}

function checkManifest(manifest: Manifest): void {
  const { version, headerBytes, fileBytes, nLayer, chunkBytes, tensors } = manifest;
  if (version !== MANIFEST_VERSION) {
    throw new MeshnetError('VERSION_UNSUPPORTED', 'the manifest has another version', {
      details: { version, supported: MANIFEST_VERSION },
    });
  }
  if (nLayer > LIMITS.layersPerModel) {
    throw exceeded('n_layer', nLayer, LIMITS.layersPerModel);
  }
  if (headerBytes > LIMITS.headerBytes) {
    throw exceeded('header_bytes', headerBytes, LIMITS.headerBytes);
  }
  const wrong = [
    ['header_sha256', manifest.headerSha256.length !== LIMITS.digestBytes],
    ['file_sha256', manifest.fileSha256.length !== LIMITS.digestBytes],
    ['header_bytes', headerBytes < 1 || headerBytes > fileBytes],
    ['architecture', !/^[a-z0-9][a-z0-9._-]{0,63}$/.test(manifest.architecture)],
    ['n_layer', nLayer < 1],
    ['chunk_bytes', !isPowerOfTwo(chunkBytes) || chunkBytes < MIN_CHUNK_BYTES || chunkBytes > MAX_CHUNK_BYTES],
    ['tensors', tensors.length === 0],
  ].find(([, isWrong]) => isWrong === true);
  if (wrong !== undefined) {
    throw malformed(String(wrong[0]));
  }
  checkTensors(manifest);
}

function checkTensors({ headerBytes, fileBytes, nLayer, chunkBytes, tensors }: Manifest): void {
  const names = new Set<string>();
  let end = headerBytes;
  for (const tensor of tensors) {
    const { name, offset, bytes } = tensor;
    const block = blockIndex(name);
    const wrong = [
      ['name', !/^[\x21-\x7e]{1,63}$/.test(name) || names.has(name)],
      ['layer', block === undefined ? name.startsWith('blk.') : block >= nLayer],
      ['bytes', bytes !== tensorBytes(tensor.type, tensor.dims)],
      ['offset', offset < end || offset + bytes > fileBytes],
      ['chunk_sha256', tensor.chunkSha256.length !== chunkCount(bytes, chunkBytes) * LIMITS.digestBytes],
    ].find(([, isWrong]) => isWrong === true);
    if (wrong !== undefined) {
      throw malformed(String(wrong[0]), { tensor: name.slice(0, 64) });
    }
    names.add(name);
    end = offset + bytes;
  }
}

function isPowerOfTwo(value: number): boolean {
  return value > 0 && Number.isInteger(Math.log2(value));
}

function malformed(field: string, details: Record<string, unknown> = {}, options: ErrorOptions = {}): MeshnetError {
  return new MeshnetError('MALFORMED', `the manifest is wrong in ${field}`, { ...options, details: { field, ...details } });
}

function exceeded(field: string, value: number, limit: number): MeshnetError {
  return new MeshnetError('LIMIT_EXCEEDED', `the manifest has too much in ${field}`, { details: { field, value, limit } });
}
