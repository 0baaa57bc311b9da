import path from 'node:path';
import { LineSystem } from '../systems/line-system.ts';
import { BIN } from '../systems/native.ts';
import type { System } from '../systems/system.ts';
import { LLAMA_FORMATS, TORCH_TYPES, type GateLane, type LlamaFormat, type TorchType } from './lanes.ts';
import type { Reference } from './reference.ts';
import type { Weights } from './weights.ts';

export type SystemName = LlamaFormat | `torch_${TorchType}`;

export interface GateSystem {
  readonly name: SystemName;
  /** File or folder of its weights. */
  readonly weights: string;
  readonly system: System;
}

export interface SystemParts {
  readonly weights: Weights;
  readonly reference: Reference | undefined;
  readonly cores: readonly number[];
}

/** As llama.cpp's own programs have it. */
export const UBATCH = 512;
/** Cells are counted in blocks of so many. */
const CELL_BLOCK = 256;

/** The systems of a lane, opponents first. Every one has all the cores. */
export function systemsOf(
  { context, output, sessions }: GateLane,
  { weights, reference, cores }: SystemParts,
): GateSystem[] {
  const threads = String(cores.length);
  const torch =
    reference === undefined || weights.torch === undefined
      ? []
      : TORCH_TYPES.map((type) => {
          const folder = weights.torch?.[type] ?? '';
          return {
            name: `torch_${type}` as const,
            weights: folder,
            system: reference.system({ name: `torch_${type}`, folder, type, cores }),
          };
        });
  const cells = Math.ceil((sessions * (context + output)) / CELL_BLOCK) * CELL_BLOCK;
  const llama = LLAMA_FORMATS.map((format) => ({
    name: format,
    weights: weights.gguf[format],
    system: new LineSystem({
      name: format,
      command: path.join(BIN, 'meshnet-bench-whole'),
      args: [
        '--model',
        weights.gguf[format],
        '--threads',
        threads,
        '--cells',
        String(cells),
        '--sessions',
        String(sessions),
        '--ubatch',
        String(UBATCH),
      ],
      cores,
    }),
  }));
  return [...torch, ...llama];
}
