import { llamaRecipe, type Recipe } from '../limits/arithmetic.ts';
import { stepBudget, type BudgetPart } from '../limits/budget.ts';
import { laneReached, middleStep, type LaneOf, type LaneReached } from '../limits/lane-limits.ts';
import type { MachineLimits } from '../limits/machine-limits.ts';
import { readModelShape } from '../limits/model-shape.ts';
import { medianOf } from '../runner/figures.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { LLAMA_FORMATS, type GateLane, type LlamaFormat, type TorchType } from './lanes.ts';
import { UBATCH, type SystemName } from './systems.ts';
import type { Weights } from './weights.ts';

const TORCH: Readonly<Record<TorchType, Recipe>> = {
  float32: { weightBytes: 4, kvBytes: 4, arithmetic: 'f32' },
  bfloat16: { weightBytes: 2, kvBytes: 2, arithmetic: 'bf16' },
};

/** Of one system; its lines for people are made again from them. */
export type SystemLimits = Pick<LaneReached, 'decode' | 'prefill'>;

export interface LimitsParts {
  readonly record: LaneRecord;
  readonly weights: Weights;
  readonly machine: MachineLimits;
}

/** How near each system comes to what the machine can do, and where the time of a step in llama.cpp goes. */
export async function limitsOf(
  lane: GateLane,
  { record, weights, machine }: LimitsParts,
): Promise<Required<Pick<LaneRecord, 'limits' | 'budget'>>> {
  const limits: Record<string, SystemLimits> = {};
  const budget: BudgetPart[] = [];
  const steps = lane.output - 1;
  for (const system of record.systems as SystemName[]) {
    const of = await laneOf(lane, { system, weights, machine });
    const stepMs = medianOf(record, system, 'decode_ms') / steps;
    const { decode, prefill } = laneReached(system, of, { stepMs, prefillMs: medianOf(record, system, 'prefill_ms') });
    limits[system] = { decode, prefill };
    if (isFormat(system)) {
      const parts = stepBudget({
        stepMs,
        computeMs: medianOf(record, system, 'compute_ms') / steps,
        sampleMs: medianOf(record, system, 'sample_ms') / steps,
        work: middleStep(of),
        limits: machine,
      });
      budget.push(...parts.map(({ part, ms }) => ({ part: `${system}: ${part}`, ms })));
    }
  }
  return { limits, budget };
}

interface Subject {
  readonly system: SystemName;
  readonly weights: Weights;
  readonly machine: MachineLimits;
}

async function laneOf({ context, output, sessions }: GateLane, { system, weights, machine }: Subject): Promise<LaneOf> {
  const shared = { limits: machine, context, output, sessions };
  if (isFormat(system)) {
    const shape = await readModelShape(weights.gguf[system]);
    return { ...shared, shape, recipe: llamaRecipe(shape), ubatch: UBATCH };
  }
  // The recipe runs all prompts through each layer at once. Its shape is that of any format.
  const shape = await readModelShape(weights.gguf.f16);
  return { ...shared, shape, recipe: TORCH[system.slice('torch_'.length) as TorchType], ubatch: context * sessions };
}

function isFormat(system: SystemName): system is LlamaFormat {
  return (LLAMA_FORMATS as readonly string[]).includes(system);
}
