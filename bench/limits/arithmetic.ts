import type { Arithmetic } from './machine-limits.ts';
import type { ModelShape } from './model-shape.ts';
import type { Held } from './work.ts';

/** How a system holds a model and what it multiplies with. */
export interface Recipe extends Held {
  readonly arithmetic: Arithmetic;
}

/** llama.cpp on a processor: the weights as in the file, f16 keys and values. */
export function llamaRecipe({ weights }: ModelShape): Recipe {
  const elements = new Map<string, number>();
  for (const weight of weights) {
    elements.set(weight.type, (elements.get(weight.type) ?? 0) + weight.elements);
  }
  const [[type] = ['F32']] = [...elements].toSorted(([, a], [, b]) => b - a);
  // f16 is widened and multiplied as f32; a quantised row meets activations that are rounded to 8 bits.
  const arithmetic = type === 'F32' || type === 'F16' ? 'f32' : type === 'BF16' ? 'bf16' : 'int8';
  return { arithmetic };
}
