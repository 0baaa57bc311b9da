import { corruptModel, type GgufCursor } from './gguf-cursor.ts';

/** Value types, as the header numbers them. */
export const GgufType = Object.freeze({
  UINT8: 0, INT8: 1, UINT16: 2, INT16: 3, UINT32: 4, INT32: 5, FLOAT32: 6, BOOL: 7, STRING: 8, ARRAY: 9,
  UINT64: 10, INT64: 11, FLOAT64: 12,
});

const SCALAR_BYTES = new Map<number, number>([
  [GgufType.UINT8, 1], [GgufType.INT8, 1], [GgufType.UINT16, 2], [GgufType.INT16, 2], [GgufType.UINT32, 4],
  [GgufType.INT32, 4], [GgufType.FLOAT32, 4], [GgufType.BOOL, 1], [GgufType.UINT64, 8], [GgufType.INT64, 8],
  [GgufType.FLOAT64, 8],
]);

/** Real headers have some dozens of keys, vocabularies up to some hundred thousand entries. */
const MAX_KEYS = 4096;
const MAX_KEY_BYTES = 256;
const MAX_ARRAY_LENGTH = 4 * 1024 * 1024;
const MAX_STRING_BYTES = 16 * 1024 * 1024;
/** Longer strings (chat templates, licences) are checked and dropped. */
const KEPT_STRING_BYTES = 1024;

export interface MetadataEntry {
  /** Where its value begins in the file. */
  readonly offset: number;
  readonly type: number;
  /** Left out for arrays and long strings. */
  readonly value?: string | number | bigint | boolean;
  readonly array?: { readonly type: number; readonly length: number };
}

export type Metadata = ReadonlyMap<string, MetadataEntry>;

/** Arrays that llama.cpp reads as plain memory of this type, without asking what they are. */
const ARRAY_TYPES = new Map<string, readonly number[]>([
  ['tokenizer.ggml.tokens', [GgufType.STRING]],
  ['tokenizer.ggml.merges', [GgufType.STRING]],
  ['tokenizer.ggml.scores', [GgufType.FLOAT32]],
  ['tokenizer.ggml.token_type', [GgufType.INT32, GgufType.UINT32]],
]);
/** As long as the vocabulary. */
const PER_TOKEN = ['tokenizer.ggml.scores', 'tokenizer.ggml.token_type'];

/**
 * Reads the key-value pairs at the cursor, from their count on.
 *
 * @throws {MeshnetError} MODEL_CORRUPT with `field` and `offset`
 */
export async function readMetadata(cursor: GgufCursor): Promise<Metadata> {
  const metadata = new Map<string, MetadataEntry>();
  const count = await cursor.count('metadata_count', MAX_KEYS);
  for (let i = 0; i < count; i++) {
    const at = cursor.offset;
    const key = (await cursor.string(`key ${i}`, MAX_KEY_BYTES)).toString('latin1');
    if (!/^[\x21-\x7e]+$/.test(key)) {
      throw corruptModel(`key ${i}`, 'is empty or has bytes outside printable ASCII', { offset: at });
    }
    if (metadata.has(key)) {
      throw corruptModel(key, 'stands twice', { offset: at });
    }
    metadata.set(key, await readEntry(cursor, key));
  }
  checkVocabulary(metadata);
  return metadata;
}

async function readEntry(cursor: GgufCursor, key: string): Promise<MetadataEntry> {
  const type = await cursor.u32(`${key} type`);
  const { offset } = cursor;
  if (type === GgufType.ARRAY) {
    return { offset, type, array: await skipArray(cursor, key) };
  }
  if (type === GgufType.STRING) {
    const text = await cursor.string(key, MAX_STRING_BYTES);
    return text.length > KEPT_STRING_BYTES ? { offset, type } : { offset, type, value: text.toString('utf8') };
  }
  return { offset, type, value: await readScalar(cursor, key, type) };
}

async function readScalar(cursor: GgufCursor, key: string, type: number): Promise<number | bigint | boolean> {
  const { offset } = cursor;
  const size = SCALAR_BYTES.get(type);
  if (size === undefined) {
    throw corruptModel(`${key} type`, 'is unknown', { offset: offset - 4, value: type });
  }
  const bytes = await cursor.bytes(size, key);
  switch (type) {
    case GgufType.UINT8: return bytes.readUInt8();
    case GgufType.INT8: return bytes.readInt8();
    case GgufType.UINT16: return bytes.readUInt16LE();
    case GgufType.INT16: return bytes.readInt16LE();
    case GgufType.UINT32: return bytes.readUInt32LE();
    case GgufType.INT32: return bytes.readInt32LE();
    case GgufType.FLOAT32: return bytes.readFloatLE();
    case GgufType.UINT64: return bytes.readBigUInt64LE();
    case GgufType.INT64: return bytes.readBigInt64LE();
    case GgufType.FLOAT64: return bytes.readDoubleLE();
    default: {
      const value = bytes.readUInt8();
      if (value > 1) {
        throw corruptModel(key, 'is no boolean', { offset, value });
      }
      return value === 1;
    }
  }
}

async function skipArray(cursor: GgufCursor, key: string): Promise<{ type: number; length: number }> {
  const { offset } = cursor;
  const type = await cursor.u32(`${key} element type`);
  const size = SCALAR_BYTES.get(type);
  if (size === undefined && type !== GgufType.STRING) {
    throw corruptModel(`${key} element type`, 'is unknown, or an array of arrays', { offset, value: type });
  }
  const length = await cursor.count(`${key} length`, MAX_ARRAY_LENGTH);
  if (size === undefined) {
    await cursor.skipStrings(length, key, MAX_STRING_BYTES);
  } else {
    cursor.skip(length * size, key);
  }
  return { type, length };
}

function checkVocabulary(metadata: Metadata): void {
  for (const [key, types] of ARRAY_TYPES) {
    const entry = metadata.get(key);
    if (entry !== undefined && !types.includes(entry.array?.type ?? -1)) {
      throw corruptModel(key, 'has the wrong type', { offset: entry.offset, type: entry.array?.type ?? entry.type });
    }
  }
  const tokens = metadata.get('tokenizer.ggml.tokens')?.array?.length;
  for (const key of PER_TOKEN) {
    const entry = metadata.get(key);
    if (entry !== undefined && tokens !== undefined && entry.array?.length !== tokens) {
      throw corruptModel(key, 'has not one entry per token', {
        offset: entry.offset, length: entry.array?.length, expected: tokens,
      });
    }
  }
}

/**
 * @throws {MeshnetError} MODEL_CORRUPT when the key is missing, no integer, or outside `[min, max]`
 */
export function requireInteger(metadata: Metadata, key: string, min: number, max: number): number {
  const entry = metadata.get(key);
  if (entry === undefined) {
    throw corruptModel(key, 'is missing');
  }
  const { value, type, offset } = entry;
  const isInteger = typeof value === 'bigint' || (typeof value === 'number' && Number.isInteger(value));
  if (!isInteger || type === GgufType.FLOAT32 || type === GgufType.FLOAT64 || value < min || value > max) {
    throw corruptModel(key, `is no integer from ${min} to ${max}`, { offset, value, type });
  }
  return Number(value);
}

/**
 * @throws {MeshnetError} MODEL_CORRUPT when the key is missing, no text, or does not match
 */
export function requireText(metadata: Metadata, key: string, pattern: RegExp): string {
  const entry = metadata.get(key);
  if (entry === undefined) {
    throw corruptModel(key, 'is missing');
  }
  const { value, type, offset } = entry;
  if (typeof value !== 'string' || !pattern.test(value)) {
    throw corruptModel(key, 'is no text of the expected form', { offset, type });
  }
  return value;
}
