import { readModelShape } from '../limits/model-shape.ts';

/** `embedding`, `output`, `matrices` and `norms`, each with the types that its tensors became. */
export type TensorTypes = Readonly<Record<string, string>>;

/** A quantiser chooses by tensor: what a file is called says what most of it is. */
export async function tensorTypes(file: string): Promise<TensorTypes> {
  const types: Record<string, Set<string>> = {};
  for (const { name, type, elements, rowElements } of (await readModelShape(file)).weights) {
    (types[classOf(name, elements === rowElements)] ??= new Set()).add(type.toLowerCase());
  }
  return Object.fromEntries(Object.entries(types).map(([name, all]) => [name, [...all].toSorted().join(', ')]));
}

function classOf(name: string, isVector: boolean): string {
  if (name === 'token_embd.weight') {
    return 'embedding';
  }
  return name === 'output.weight' ? 'output' : isVector ? 'norms' : 'matrices';
}
