/**
 * The header of a GGUF file, checked before llama.cpp sees the file: it aborts the process on some bad headers.
 *
 * Our own reader, although `@huggingface/gguf` exists: that one pads its buffer with zeros, so a file that ends inside
 * its header reads as zeros; it keeps whole vocabularies in memory, replaces duplicate keys, does not compare tensors
 * with the length of the file, and its errors name neither field nor offset.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { MeshnetError } from '../errors.ts';
import { LIMITS } from '../domain/limits.ts';
import { blockIndex } from '../domain/manifest.ts';
import { tensorBytes, tensorTypeName } from '../domain/tensor-type.ts';
import { GgufCursor, corruptModel } from './gguf-cursor.ts';
import { GgufType, readMetadata, requireInteger, requireText, type Metadata } from './gguf-metadata.ts';

const MAGIC = 0x46554747; // "GGUF"
const VERSIONS = [2, 3];
const DEFAULT_ALIGNMENT = 32;
const MAX_ALIGNMENT = 4096;
const MAX_NAME_BYTES = 63;
const MAX_DIMS = 4;

export interface GgufTensor {
  readonly name: string;
  readonly type: number;
  /** ggml order: the first is contiguous. */
  readonly dims: readonly number[];
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface GgufHeader {
  readonly version: number;
  readonly alignment: number;
  /** Everything before the tensor data, padding included. */
  readonly headerBytes: number;
  readonly fileBytes: number;
  readonly architecture: string;
  readonly nLayer: number;
  readonly metadata: Metadata;
  /** In file order; none overlaps another or leaves the file. */
  readonly tensors: readonly GgufTensor[];
}

/**
 * Opens a file and reads its header.
 *
 * @throws {MeshnetError} MODEL_CORRUPT with `field` and `offset`; SOURCE_UNAVAILABLE when there is no such file
 */
export async function readGgufFile(path: string): Promise<GgufHeader> {
  const handle = await openModelFile(path);
  try {
    return await readGgufHeader(handle, (await handle.stat()).size);
  } finally {
    await handle.close();
  }
}

/**
 * Opens a regular file for reading.
 *
 * @throws {MeshnetError} SOURCE_UNAVAILABLE
 */
export async function openModelFile(path: string): Promise<FileHandle> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, 'r');
    if ((await handle.stat()).isFile()) {
      return handle;
    }
  } catch (cause) {
    await handle?.close();
    throw new MeshnetError('SOURCE_UNAVAILABLE', 'the model file cannot be opened', { cause, details: { path } });
  }
  await handle.close();
  throw new MeshnetError('SOURCE_UNAVAILABLE', 'the model path is no regular file', { details: { path } });
}

/**
 * Reads and checks the header of an open file.
 *
 * @param fileBytes - the file's length; every tensor must lie inside
 * @throws {MeshnetError} MODEL_CORRUPT with `field` and `offset`
 */
export async function readGgufHeader(handle: FileHandle, fileBytes: number): Promise<GgufHeader> {
  const cursor = new GgufCursor(handle, Math.min(fileBytes, LIMITS.headerBytes));
  if ((await cursor.u32('magic')) !== MAGIC) {
    throw corruptModel('magic', 'is not GGUF', { offset: 0 });
  }
  const version = await cursor.u32('version');
  if (!VERSIONS.includes(version)) {
    throw corruptModel('version', 'is not supported', { offset: 4, value: version, supported: VERSIONS });
  }
  const tensorCount = await cursor.count('tensor_count', LIMITS.tensorsPerModel);
  const metadata = await readMetadata(cursor);
  const { architecture, nLayer, alignment } = readShape(metadata);
  const entries = await readTensorTable(cursor, tensorCount, nLayer);
  const headerBytes = padded(cursor.offset, alignment);
  if (tensorCount === 0) {
    throw corruptModel('tensor_count', 'is zero: a vocabulary alone cannot be served', { offset: 8 });
  }
  if (headerBytes > fileBytes || headerBytes > LIMITS.headerBytes) {
    throw corruptModel('tensor data', 'begins behind the end of the file', { offset: cursor.offset, fileBytes });
  }
  const tensors = placeTensors(entries, { headerBytes, fileBytes, alignment });
  return { version, alignment, headerBytes, fileBytes, architecture, nLayer, metadata, tensors };
}

function readShape(metadata: Metadata): { architecture: string; nLayer: number; alignment: number } {
  const architecture = requireText(metadata, 'general.architecture', /^[a-z0-9][a-z0-9._-]{0,63}$/);
  const nLayer = requireInteger(metadata, `${architecture}.block_count`, 1, LIMITS.layersPerModel);
  requireInteger(metadata, `${architecture}.embedding_length`, 1, 1 << 20);
  requireInteger(metadata, `${architecture}.context_length`, 1, 2 ** 31 - 1);
  requireText(metadata, 'tokenizer.ggml.model', /^[\x21-\x7e]{1,64}$/);
  if (metadata.has('split.count') && requireInteger(metadata, 'split.count', 0, 65_535) > 1) {
    const { offset } = metadata.get('split.count') ?? {};
    throw corruptModel('split.count', 'says that this is one of several files; merge them first', { offset });
  }
  let alignment = DEFAULT_ALIGNMENT;
  const given = metadata.get('general.alignment');
  if (given !== undefined) {
    alignment = requireInteger(metadata, 'general.alignment', 1, MAX_ALIGNMENT);
    // Eight at least, because the loader reads values of that size in place.
    if (given.type !== GgufType.UINT32 || alignment < 8 || !Number.isInteger(Math.log2(alignment))) {
      throw corruptModel('general.alignment', 'is no power of two from 8 to 4096', { offset: given.offset, alignment });
    }
  }
  return { architecture, nLayer, alignment };
}

interface TableEntry extends Omit<GgufTensor, 'offset'> {
  /** Where its entry stands in the file. */
  readonly at: number;
  /** From the start of the tensor data. */
  readonly dataOffset: bigint;
}

async function readTensorTable(cursor: GgufCursor, count: number, nLayer: number): Promise<TableEntry[]> {
  const entries: TableEntry[] = [];
  const names = new Set<string>();
  for (let i = 0; i < count; i++) {
    const at = cursor.offset;
    const name = (await cursor.string(`tensor ${i} name`, MAX_NAME_BYTES)).toString('latin1');
    if (!/^[\x21-\x7e]+$/.test(name)) {
      throw corruptModel(`tensor ${i} name`, 'is empty or has bytes outside printable ASCII', { offset: at });
    }
    if (names.has(name)) {
      throw corruptModel(`tensor ${name}`, 'stands twice', { offset: at });
    }
    names.add(name);
    const block = blockIndex(name);
    if (block === undefined ? name.startsWith('blk.') : block >= nLayer) {
      throw corruptModel(`tensor ${name}`, 'belongs to a block outside the model', { offset: at, nLayer });
    }
    entries.push({ name, at, ...(await readTensorShape(cursor, name)) });
  }
  return entries;
}

async function readTensorShape(
  cursor: GgufCursor,
  name: string,
): Promise<Pick<TableEntry, 'type' | 'dims' | 'bytes' | 'dataOffset'>> {
  const field = `tensor ${name}`;
  const at = cursor.offset;
  const nDims = await cursor.u32(`${field} n_dims`);
  if (nDims < 1 || nDims > MAX_DIMS) {
    throw corruptModel(`${field} n_dims`, `is not 1 to ${MAX_DIMS}`, { offset: at, value: nDims });
  }
  const dims: number[] = [];
  for (let d = 0; d < nDims; d++) {
    dims.push(await cursor.count(`${field} dims`, Number.MAX_SAFE_INTEGER));
  }
  const typeAt = cursor.offset;
  const type = await cursor.u32(`${field} type`);
  if (tensorTypeName(type) === undefined) {
    throw corruptModel(`${field} type`, 'is unknown', { offset: typeAt, value: type });
  }
  const bytes = tensorBytes(type, dims);
  if (bytes === undefined) {
    throw corruptModel(`${field} dims`, 'are zero, too large or no whole blocks', { offset: at, dims, type });
  }
  return { type, dims, bytes, dataOffset: await cursor.u64(`${field} offset`) };
}

/** llama.cpp wants the data of each tensor right behind the one before it, so nothing can overlap. */
function placeTensors(
  entries: readonly TableEntry[],
  { headerBytes, fileBytes, alignment }: { headerBytes: number; fileBytes: number; alignment: number },
): GgufTensor[] {
  let expected = headerBytes;
  return entries.map(({ at, dataOffset, ...tensor }) => {
    if (dataOffset !== BigInt(expected - headerBytes)) {
      throw corruptModel(`tensor ${tensor.name} offset`, 'is not where the tensor before it ends', {
        offset: at, value: dataOffset, expected: expected - headerBytes,
      });
    }
    const offset = expected;
    if (offset + tensor.bytes > fileBytes) {
      throw corruptModel(`tensor ${tensor.name}`, 'reaches behind the end of the file', {
        offset, bytes: tensor.bytes, fileBytes,
      });
    }
    expected = padded(offset + tensor.bytes, alignment);
    return { ...tensor, offset };
  });
}

function padded(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}
