import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { readModelShape, type ModelShape } from '../../../bench/limits/model-shape.ts';
import { buildGguf, smallModel, u32, type Value } from '../../model/gguf-builder.ts';

const Q8_0 = 8;
const EMBD = 64;
const VOCABULARY = 4;

export interface ShapeOptions {
  readonly tied: boolean;
  readonly extra?: readonly (readonly [string, Value])[];
}

/** Two layers of width 64, two heads, one of keys and values; matrices in q8_0, norms in f32. */
export async function smallShape({ tied, extra = [] }: ShapeOptions): Promise<ModelShape> {
  const matrix = (name: string, columns: number, rows: number) =>
    ({ name, dims: [columns, rows], type: Q8_0, bytes: columns * rows / 32 * 34 });
  const blocks = [0, 1].flatMap((layer) => [
    { name: `blk.${layer}.attn_norm.weight`, dims: [EMBD] },
    matrix(`blk.${layer}.attn_q.weight`, EMBD, EMBD),
    matrix(`blk.${layer}.attn_k.weight`, EMBD, 32),
    matrix(`blk.${layer}.attn_v.weight`, EMBD, 32),
    matrix(`blk.${layer}.attn_output.weight`, EMBD, EMBD),
  ]);
  const small = smallModel(2);
  const { bytes } = buildGguf({
    metadata: [
      ...small.metadata.filter(([key]) => key !== 'llama.embedding_length'),
      ['llama.embedding_length', u32(EMBD)],
      ['llama.attention.head_count', u32(2)],
      ['llama.attention.head_count_kv', u32(1)],
      ...extra.map(([key, value]): [string, Value] => [key, value]),
    ],
    tensors: [
      matrix('token_embd.weight', EMBD, VOCABULARY), ...blocks, { name: 'output_norm.weight', dims: [EMBD] },
      ...tied ? [] : [matrix('output.weight', EMBD, VOCABULARY)],
    ],
  });
  const folder = await mkdtemp(path.join(os.tmpdir(), 'meshnet-limits-test-'));
  try {
    const file = path.join(folder, 'small.gguf');
    await writeFile(file, bytes);
    return await readModelShape(file);
  } finally {
    await rm(folder, { recursive: true });
  }
}
