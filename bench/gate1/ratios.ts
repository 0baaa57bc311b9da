import { number } from '../runner/figures.ts';
import { ratioOf, type Measures, type Ratio, type Rounds } from '../runner/rounds.ts';
import { LLAMA_FORMATS, TORCH_TYPES } from './lanes.ts';
import type { SystemName } from './systems.ts';

type Runs = Readonly<Record<SystemName, Measures>>;

/** Against Transformers at its best in that measure and that round: the faster one, and the one with less memory. */
export function ratiosOf(rounds: Rounds<SystemName>): Record<string, Ratio> {
  const ratios: Record<string, Ratio> = {};
  for (const format of LLAMA_FORMATS) {
    ratios[`decode/${format}_over_transformers`] = ratioOf(
      rounds,
      (runs) => number(runs[format], 'decode') / Math.max(...opponents(runs, 'decode')),
    );
    ratios[`prefill/${format}_over_transformers`] = ratioOf(
      rounds,
      (runs) => number(runs[format], 'prefill') / Math.max(...opponents(runs, 'prefill')),
    );
    ratios[`memory/${format}_over_transformers`] = ratioOf(
      rounds,
      (runs) => number(runs[format], 'memory_mib') / Math.min(...opponents(runs, 'memory_mib')),
    );
  }
  return ratios;
}

/** Without the Python side: formats against f16, so that a smoke run has figures. */
export function ratiosAmongLlama(rounds: Rounds<SystemName>): Record<string, Ratio> {
  const ratios: Record<string, Ratio> = {};
  for (const format of LLAMA_FORMATS.filter((one) => one !== 'f16')) {
    for (const measure of ['decode', 'prefill', 'memory']) {
      const name = measure === 'memory' ? 'memory_mib' : measure;
      ratios[`${measure}/${format}_over_f16`] = ratioOf(
        rounds,
        (runs) => number(runs[format], name) / number(runs.f16, name),
      );
    }
  }
  return ratios;
}

function opponents(runs: Runs, measure: string): number[] {
  return TORCH_TYPES.map((type) => number(runs[`torch_${type}`], measure));
}
