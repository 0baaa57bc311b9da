import { tensorTypeName } from '../../src/domain/tensor-type.ts';
import { readGgufFile, type GgufTensor } from '../../src/model/gguf.ts';

/** What a file holds: which class of tensors became which type, and what a token has to read of it. */
export interface Tensors {
  /** `embedding`, `output`, `matrices` and `norms`, each with its types. */
  readonly types: Readonly<Record<string, string>>;
  /** Of every weight that each step reads whole: all but a token embedding that is not the output head, too. */
  readonly stepBytes: number;
  /** The same in numbers: what another format of the same shape reads, divided by its bytes a number. */
  readonly stepElements: number;
  readonly bytes: number;
}

export async function tensorsOf(file: string): Promise<Tensors> {
  const { tensors } = await readGgufFile(file);
  const untied = tensors.some(({ name }) => name === 'output.weight');
  const read = tensors.filter(({ name }) => !(untied && name === 'token_embd.weight'));
  const types: Record<string, Set<string>> = {};
  for (const tensor of tensors) {
    (types[classOf(tensor)] ??= new Set()).add((tensorTypeName(tensor.type) ?? String(tensor.type)).toLowerCase());
  }
  return {
    types: Object.fromEntries(Object.entries(types).map(([name, all]) => [name, [...all].toSorted().join(', ')])),
    stepBytes: sum(read.map(({ bytes }) => bytes)),
    stepElements: sum(read.map(({ dims }) => dims.reduce((product, dim) => product * dim, 1))),
    bytes: sum(tensors.map(({ bytes }) => bytes)),
  };
}

function classOf({ name, dims }: GgufTensor): string {
  if (name === 'token_embd.weight') {
    return 'embedding';
  }
  if (name === 'output.weight') {
    return 'output';
  }
  return dims.length === 1 ? 'norms' : 'matrices';
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
