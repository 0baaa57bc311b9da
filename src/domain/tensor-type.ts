/** Element types of GGUF tensors, by the number that the header carries. */

/** `[elements, bytes]` of one block. */
type Block = readonly [elements: number, bytes: number];

/** Types that the pinned llama.cpp can load. Numbers that upstream has retired are left out, so they are refused. */
const BLOCKS = new Map<number, readonly [name: string, block: Block]>([
  [0, ['F32', [1, 4]]],
  [1, ['F16', [1, 2]]],
  [2, ['Q4_0', [32, 18]]],
  [3, ['Q4_1', [32, 20]]],
  [6, ['Q5_0', [32, 22]]],
  [7, ['Q5_1', [32, 24]]],
  [8, ['Q8_0', [32, 34]]],
  [10, ['Q2_K', [256, 84]]],
  [11, ['Q3_K', [256, 110]]],
  [12, ['Q4_K', [256, 144]]],
  [13, ['Q5_K', [256, 176]]],
  [14, ['Q6_K', [256, 210]]],
  [16, ['IQ2_XXS', [256, 66]]],
  [17, ['IQ2_XS', [256, 74]]],
  [18, ['IQ3_XXS', [256, 98]]],
  [19, ['IQ1_S', [256, 50]]],
  [20, ['IQ4_NL', [32, 18]]],
  [21, ['IQ3_S', [256, 110]]],
  [22, ['IQ2_S', [256, 82]]],
  [23, ['IQ4_XS', [256, 136]]],
  [24, ['I8', [1, 1]]],
  [25, ['I16', [1, 2]]],
  [26, ['I32', [1, 4]]],
  [27, ['I64', [1, 8]]],
  [28, ['F64', [1, 8]]],
  [29, ['IQ1_M', [256, 56]]],
  [30, ['BF16', [1, 2]]],
  [34, ['TQ1_0', [256, 54]]],
  [35, ['TQ2_0', [256, 66]]],
  [39, ['MXFP4', [32, 17]]],
  [40, ['NVFP4', [64, 36]]],
  [41, ['Q1_0', [128, 18]]],
  [42, ['Q2_0', [64, 18]]],
]);

/** `Q4_1` for 3; undefined for a number that names no type. */
export function tensorTypeName(type: number): string | undefined {
  return BLOCKS.get(type)?.[0];
}

/**
 * Bytes of a tensor, or undefined when the type is unknown, a dimension is not positive, a row is no whole number of
 * blocks, or the size is not exact in a double.
 *
 * @param dims - ggml order, the first is contiguous; one to four
 */
export function tensorBytes(type: number, dims: readonly number[]): number | undefined {
  const block = BLOCKS.get(type)?.[1];
  const row = dims[0];
  if (block === undefined || row === undefined || dims.length > 4) {
    return undefined;
  }
  const [elements, bytes] = block;
  if (dims.some((dim) => !Number.isSafeInteger(dim) || dim < 1) || row % elements !== 0) {
    return undefined;
  }
  let size = bytes * (row / elements);
  for (const dim of dims.slice(1)) {
    size *= dim;
  }
  return Number.isSafeInteger(size) ? size : undefined;
}
