/** Digests of model files: the manifest of a whole one, and a part of one against a manifest. */
import { createHash, type Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { equals } from 'uint8arrays/equals';
import {
  CHUNK_BYTES,
  MANIFEST_VERSION,
  decodeManifest,
  encodeManifest,
  modelDigest,
  rangeBytes,
  tensorsOfRange,
  type Manifest,
  type TensorEntry,
} from '../domain/manifest.ts';
import { assertRangeInside, type LayerRange } from '../domain/shard.ts';
import { MeshnetError } from '../errors.ts';
import { throwIfAborted } from './abort.ts';
import { corruptModel } from './gguf-cursor.ts';
import { openModelFile, readGgufHeader, type GgufHeader } from './gguf.ts';

/**
 * Read and hashed in one go. The event loop runs other work between two slices, so this bounds how long it waits:
 * about a millisecond.
 */
const SLICE_BYTES = 256 * 1024;
const DIGEST_BYTES = 32;

export interface DigestOptions {
  signal: AbortSignal;
  /** Bytes read, and how many there will be. */
  onProgress?: (done: number, total: number) => void;
}

export interface IdentifiedModel {
  readonly manifest: Manifest;
  /** Canonical encoding. */
  readonly manifestBytes: Uint8Array;
  /** SHA-256 of `manifestBytes`. */
  readonly digest: Uint8Array;
}

/**
 * Makes the manifest of a whole GGUF file in one pass over it.
 *
 * @throws {MeshnetError} MODEL_CORRUPT, SOURCE_UNAVAILABLE, CANCELLED
 */
export async function digestModel(path: string, options: DigestOptions): Promise<IdentifiedModel> {
  const handle = await openModelFile(path);
  try {
    const { size, mtimeMs } = await handle.stat();
    const header = await readGgufHeader(handle, size);
    const manifest = await readManifest(new Reader(handle, size, options), header);
    const after = await handle.stat();
    if (after.size !== size || after.mtimeMs !== mtimeMs) {
      throw corruptModel('file', 'changed while it was read', { path, size, sizeAfter: after.size });
    }
    return identify(encodeManifest(manifest));
  } finally {
    await handle.close();
  }
}

/**
 * Manifest and digest of canonical bytes.
 *
 * @throws {MeshnetError} as `decodeManifest`
 */
export function identify(manifestBytes: Uint8Array): IdentifiedModel {
  return { manifest: decodeManifest(manifestBytes), manifestBytes, digest: modelDigest(manifestBytes) };
}

/**
 * Holds the header and the tensors of a layer range against a manifest. The rest of the file may be a hole.
 *
 * @throws {MeshnetError} DIGEST_MISMATCH with tensor and chunk, MODEL_CORRUPT, RANGE_INVALID, SOURCE_UNAVAILABLE,
 * CANCELLED
 */
export async function verifyRange(
  path: string,
  manifest: Manifest,
  range: LayerRange,
  options: DigestOptions,
): Promise<void> {
  assertRangeInside(range, manifest.nLayer);
  const handle = await openModelFile(path);
  try {
    const { size } = await handle.stat();
    if (size !== manifest.fileBytes) {
      throw corruptModel('file', 'has another length than its manifest says', { path, size, expected: manifest.fileBytes });
    }
    const reader = new Reader(handle, manifest.headerBytes + rangeBytes(manifest, range), options);
    if (!equals(await reader.hash(0, manifest.headerBytes), manifest.headerSha256)) {
      throw new MeshnetError('DIGEST_MISMATCH', 'the header is not the one of the manifest', { details: { path } });
    }
    assertSameShape(await readGgufHeader(handle, size), manifest);
    for (const tensor of tensorsOfRange(manifest, range)) {
      await verifyTensor(reader, tensor, manifest.chunkBytes);
    }
  } finally {
    await handle.close();
  }
}

/**
 * A manifest is only as good as whoever made it: what it says of the header must be what the header says.
 *
 * @throws {MeshnetError} MODEL_CORRUPT
 */
export function assertSameShape(header: GgufHeader, manifest: Manifest): void {
  const shape = ({ name, type, dims, offset, bytes }: Omit<TensorEntry, 'chunkSha256'>): string =>
    `${name} ${type} ${dims.join(',')} ${offset} ${bytes}`;
  const wrong = header.headerBytes !== manifest.headerBytes ? 'header_bytes'
    : header.architecture !== manifest.architecture ? 'architecture'
    : header.nLayer !== manifest.nLayer ? 'n_layer'
    : header.tensors.length !== manifest.tensors.length ? 'tensors'
    : manifest.tensors.find((tensor, i) => shape(tensor) !== shape(header.tensors[i] ?? tensor))?.name;
  if (wrong !== undefined) {
    throw corruptModel(wrong, 'differs between the manifest and the header that it describes');
  }
}

async function readManifest(reader: Reader, header: GgufHeader): Promise<Manifest> {
  const { headerBytes, fileBytes, architecture, nLayer } = header;
  const whole = createHash('sha256');
  const headerSha256 = await reader.hash(0, headerBytes, whole);
  const tensors: TensorEntry[] = [];
  let end = headerBytes;
  for (const tensor of header.tensors) {
    await reader.hash(end, tensor.offset - end, whole);
    const digests: Buffer[] = [];
    for (const { offset, bytes } of chunksOf(tensor, CHUNK_BYTES)) {
      digests.push(await reader.hash(offset, bytes, whole));
    }
    tensors.push({ ...tensor, chunkSha256: Buffer.concat(digests) });
    end = tensor.offset + tensor.bytes;
  }
  await reader.hash(end, fileBytes - end, whole);
  return {
    version: MANIFEST_VERSION, headerSha256, headerBytes, fileBytes, fileSha256: whole.digest(), architecture, nLayer,
    chunkBytes: CHUNK_BYTES, tensors,
  };
}

async function verifyTensor(reader: Reader, tensor: TensorEntry, chunkBytes: number): Promise<void> {
  let chunk = 0;
  for (const { offset, bytes } of chunksOf(tensor, chunkBytes)) {
    const expected = tensor.chunkSha256.subarray(chunk * DIGEST_BYTES, (chunk + 1) * DIGEST_BYTES);
    if (!equals(await reader.hash(offset, bytes), expected)) {
      throw new MeshnetError('DIGEST_MISMATCH', 'a part of the model is not what its manifest promises', {
        details: { tensor: tensor.name, chunk, offset, bytes },
      });
    }
    chunk++;
  }
}

function* chunksOf(
  tensor: { offset: number; bytes: number },
  chunkBytes: number,
): Generator<{ offset: number; bytes: number }> {
  const end = tensor.offset + tensor.bytes;
  for (let offset = tensor.offset; offset < end; offset += chunkBytes) {
    yield { offset, bytes: Math.min(chunkBytes, end - offset) };
  }
}

/** Hashes spans of a file slice by slice. */
class Reader {
  readonly #handle: FileHandle;
  readonly #total: number;
  readonly #options: DigestOptions;
  readonly #slice = Buffer.alloc(SLICE_BYTES);
  #done = 0;

  constructor(handle: FileHandle, total: number, options: DigestOptions) {
    this.#handle = handle;
    this.#total = total;
    this.#options = options;
  }

  /** SHA-256 of a span; `also` takes the same bytes. */
  async hash(offset: number, bytes: number, also?: Hash): Promise<Buffer> {
    const hash = createHash('sha256');
    const end = offset + bytes;
    for (let at = offset; at < end;) {
      throwIfAborted(this.#options.signal);
      const { bytesRead } = await this.#handle.read(this.#slice, 0, Math.min(SLICE_BYTES, end - at), at);
      if (bytesRead === 0) {
        throw corruptModel('file', 'ended while it was read', { offset: at });
      }
      const slice = this.#slice.subarray(0, bytesRead);
      hash.update(slice);
      also?.update(slice);
      at += bytesRead;
      this.#done += bytesRead;
      this.#options.onProgress?.(this.#done, this.#total);
    }
    return hash.digest();
  }
}
