import type { Arithmetic, MachineLimits } from '../limits/machine-limits.ts';
import { readModelShape } from '../limits/model-shape.ts';
import { reached, type Reached } from '../limits/reached.ts';
import { decodeWork, prefillWork, type Held } from '../limits/work.ts';
import type { LaneRecord } from '../runner/record.ts';
import { medianOf } from './figures.ts';
import type { GateLane } from './lanes.ts';
import { UBATCH, type SystemName } from './systems.ts';
import type { Weights } from './weights.ts';

/** How a system holds the model, and what it multiplies. */
const HELD: Readonly<Record<SystemName, Held & { readonly arithmetic: Arithmetic }>> = {
  torch_float32: { weightBytes: 4, kvBytes: 4, arithmetic: 'f32' },
  torch_bfloat16: { weightBytes: 2, kvBytes: 2, arithmetic: 'bf16' },
  f16: { arithmetic: 'f32' },
  q8_0: { arithmetic: 'int8' },
  q4_0: { arithmetic: 'int8' },
};

export interface SystemLimits {
  readonly decode: Reached;
  readonly prefill: Reached;
}

/** Of each system, how near its decode steps and its prefill come to what the machine can do at most. */
export async function limitsOf(
  { context, sessions, output }: GateLane,
  { record, weights, machine }: { record: LaneRecord; weights: Weights; machine: MachineLimits },
): Promise<Record<string, SystemLimits>> {
  const limits: Record<string, SystemLimits> = {};
  for (const system of record.systems as SystemName[]) {
    const { arithmetic, ...held } = HELD[system];
    const shape = await readModelShape(system in weights.gguf ? weights.gguf[system as keyof Weights['gguf']] : weights.gguf.f16);
    const isTorch = held.weightBytes !== undefined;
    limits[system] = {
      // In the middle of the answer.
      decode: reached({
        work: decodeWork(shape, { context: context + Math.floor(output / 2), sessions, ...held }),
        ms: medianOf(record, system, 'decode_ms') / (output - 1), arithmetic, limits: machine,
      }),
      // The recipe runs all prompts through each layer at once.
      prefill: reached({
        work: prefillWork(shape, { context, sessions, ubatch: isTorch ? context * sessions : UBATCH, ...held }),
        ms: medianOf(record, system, 'prefill_ms'), arithmetic, limits: machine,
      }),
    };
  }
  return limits;
}
