/** Writes small GGUF files for tests, by the format's description and not by the reader under test. */
import { GgufType } from '../../src/model/gguf-metadata.ts';

export type Scalar = { type: number; value: number | bigint | boolean | string };
export type List = { type: number; items: (number | string)[] };
export type Value = Scalar | List;

export interface TensorSpec {
  name: string;
  dims: (number | bigint)[];
  type?: number;
  /** From the start of the data; right behind the tensor before it when left out. */
  offset?: number | bigint;
  /** Bytes in the file; by F32 when left out. */
  bytes?: number;
}

export interface GgufSpec {
  version?: number;
  metadata: [string, Value][];
  tensors: TensorSpec[];
  alignment?: number;
  tensorCount?: bigint;
  metadataCount?: bigint;
  /** Bytes of tensor data in place of a counting pattern. */
  data?: Buffer;
}

export const u32 = (value: number): Scalar => ({ type: GgufType.UINT32, value });
export const text = (value: string): Scalar => ({ type: GgufType.STRING, value });
export const list = (type: number, items: (number | string)[]): List => ({ type, items });

export interface Built {
  bytes: Buffer;
  headerBytes: number;
  /** Where each piece of the header begins. */
  marks: { field: string; offset: number }[];
}

/** A valid Llama header of `nLayer` layers with one F32 tensor a block, and its data. */
export function smallModel(nLayer = 4): GgufSpec {
  const tokens = ['<s>', '</s>', 'a', 'b'];
  const blocks = Array.from({ length: nLayer }, (_, layer) => ({ name: `blk.${layer}.attn_q.weight`, dims: [8, 8] }));
  return {
    metadata: [
      ['general.architecture', text('llama')],
      ['llama.block_count', u32(nLayer)],
      ['llama.context_length', u32(128)],
      ['llama.embedding_length', u32(8)],
      ['llama.attention.layer_norm_rms_epsilon', { type: GgufType.FLOAT32, value: 1e-5 }],
      ['tokenizer.ggml.model', text('llama')],
      ['tokenizer.ggml.tokens', list(GgufType.STRING, tokens)],
      ['tokenizer.ggml.scores', list(GgufType.FLOAT32, tokens.map((_, i) => -i))],
      ['tokenizer.ggml.token_type', list(GgufType.INT32, tokens.map(() => 1))],
      ['tokenizer.ggml.add_bos_token', { type: GgufType.BOOL, value: true }],
    ],
    tensors: [
      { name: 'token_embd.weight', dims: [8, 4] },
      ...blocks,
      { name: 'output_norm.weight', dims: [8] },
    ],
  };
}

class Writer {
  readonly parts: Buffer[] = [];
  length = 0;

  push(part: Buffer): void {
    this.parts.push(part);
    this.length += part.length;
  }

  u32(value: number): void {
    const part = Buffer.alloc(4);
    part.writeUInt32LE(value);
    this.push(part);
  }

  u64(value: number | bigint): void {
    const part = Buffer.alloc(8);
    part.writeBigUInt64LE(BigInt(value));
    this.push(part);
  }

  text(value: string): void {
    const part = Buffer.from(value, 'latin1');
    this.u64(part.length);
    this.push(part);
  }

  scalar(type: number, value: Scalar['value']): void {
    const part = Buffer.alloc(8);
    switch (type) {
      case GgufType.STRING: this.text(String(value)); return;
      case GgufType.UINT8: case GgufType.BOOL: part.writeUInt8(Number(value)); this.push(part.subarray(0, 1)); return;
      case GgufType.INT8: part.writeInt8(Number(value)); this.push(part.subarray(0, 1)); return;
      case GgufType.UINT16: part.writeUInt16LE(Number(value)); this.push(part.subarray(0, 2)); return;
      case GgufType.INT16: part.writeInt16LE(Number(value)); this.push(part.subarray(0, 2)); return;
      case GgufType.UINT32: part.writeUInt32LE(Number(value)); this.push(part.subarray(0, 4)); return;
      case GgufType.INT32: part.writeInt32LE(Number(value)); this.push(part.subarray(0, 4)); return;
      case GgufType.FLOAT32: part.writeFloatLE(Number(value)); this.push(part.subarray(0, 4)); return;
      case GgufType.UINT64: part.writeBigUInt64LE(BigInt(value)); this.push(part); return;
      case GgufType.INT64: part.writeBigInt64LE(BigInt(value)); this.push(part); return;
      case GgufType.FLOAT64: part.writeDoubleLE(Number(value)); this.push(part); return;
      default: this.u32(Number(value)); // a type that does not exist
    }
  }
}

export function buildGguf(spec: GgufSpec): Built {
  const writer = new Writer();
  const marks: Built['marks'] = [];
  const mark = (field: string): void => { marks.push({ field, offset: writer.length }); };
  const alignment = spec.alignment ?? 32;
  mark('magic');
  writer.push(Buffer.from('GGUF'));
  mark('version');
  writer.u32(spec.version ?? 3);
  mark('tensor_count');
  writer.u64(spec.tensorCount ?? spec.tensors.length);
  mark('metadata_count');
  writer.u64(spec.metadataCount ?? spec.metadata.length);
  for (const [key, value] of spec.metadata) {
    mark(`${key} key`);
    writer.text(key);
    mark(`${key} type`);
    if ('items' in value) {
      writer.u32(GgufType.ARRAY);
      mark(`${key} element type`);
      writer.u32(value.type);
      mark(`${key} length`);
      writer.u64(value.items.length);
      mark(`${key} items`);
      value.items.forEach((item) => writer.scalar(value.type, item));
    } else {
      writer.u32(value.type);
      mark(`${key} value`);
      writer.scalar(value.type, value.value);
    }
  }
  let end = 0;
  for (const tensor of spec.tensors) {
    mark(`${tensor.name} name`);
    writer.text(tensor.name);
    mark(`${tensor.name} n_dims`);
    writer.u32(tensor.dims.length);
    mark(`${tensor.name} dims`);
    tensor.dims.forEach((dim) => writer.u64(dim));
    mark(`${tensor.name} type`);
    writer.u32(tensor.type ?? 0);
    mark(`${tensor.name} offset`);
    writer.u64(tensor.offset ?? end);
    end = pad(end + (tensor.bytes ?? tensor.dims.reduce<number>((size, dim) => size * Number(dim), 4)), alignment);
  }
  const headerBytes = pad(writer.length, alignment);
  writer.push(Buffer.alloc(headerBytes - writer.length));
  mark('data');
  writer.push(spec.data ?? Buffer.from(Uint8Array.from({ length: Math.min(end, 1 << 22) }, (_, i) => (i * 31 + (i >> 8)) & 0xff)));
  return { bytes: Buffer.concat(writer.parts), headerBytes, marks };
}

function pad(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}
