import { MeshnetError } from '../../src/errors.ts';
import { tensorTypeName } from '../../src/domain/tensor-type.ts';
import { requireInteger } from '../../src/model/gguf-metadata.ts';
import { readGgufFile, type GgufHeader } from '../../src/model/gguf.ts';

const MAX_HEADS = 1 << 16;
const MAX_WIDTH = 1 << 20;

export interface Weight {
  readonly name: string;
  /** As the header names it: `Q4_0`. */
  readonly type: string;
  readonly elements: number;
  readonly bytes: number;
  /** Of one row, where only rows are looked up. */
  readonly rowElements: number;
}

/** What a dense decoder of a GGUF holds, as far as it decides what a token costs. */
export interface ModelShape {
  readonly nLayer: number;
  readonly nHead: number;
  readonly nHeadKv: number;
  /** Of one head. */
  readonly keyWidth: number;
  readonly valueWidth: number;
  /** The output head has no weights of its own: it reads the embedding. */
  readonly tied: boolean;
  readonly weights: readonly Weight[];
}

/** @throws {MeshnetError} MODEL_CORRUPT, SOURCE_UNAVAILABLE, NOT_CERTIFIED for one that is not dense */
export async function readModelShape(file: string): Promise<ModelShape> {
  return modelShape(await readGgufFile(file));
}

function modelShape({ architecture, nLayer, metadata, tensors }: GgufHeader): ModelShape {
  const key = (name: string): string => `${architecture}.${name}`;
  const number = (name: string, most: number, otherwise: number): number =>
    metadata.has(key(name)) ? requireInteger(metadata, key(name), 0, most) : otherwise;
  if (number('expert_count', MAX_HEADS, 0) > 0) {
    throw new MeshnetError('NOT_CERTIFIED', 'which experts a token reads is not counted here', {
      details: { architecture },
    });
  }
  const nEmbd = requireInteger(metadata, key('embedding_length'), 1, MAX_WIDTH);
  const nHead = requireInteger(metadata, key('attention.head_count'), 1, MAX_HEADS);
  return {
    nLayer, nHead,
    nHeadKv: number('attention.head_count_kv', MAX_HEADS, nHead),
    keyWidth: number('attention.key_length', MAX_WIDTH, nEmbd / nHead),
    valueWidth: number('attention.value_length', MAX_WIDTH, nEmbd / nHead),
    tied: !tensors.some(({ name }) => name === 'output.weight'),
    weights: tensors.map(({ name, type, dims, bytes }) => ({
      name, bytes, type: tensorTypeName(type) ?? String(type), rowElements: dims[0] ?? 0,
      elements: dims.reduce((product, dim) => product * dim, 1),
    })),
  };
}
