import { MEMORY, R3_ALLOWANCE } from '../contract.ts';
import type { Measures } from '../runner/rounds.ts';
import { quantile, round } from '../runner/statistics.ts';
import type { ShardNow } from '../systems/mesh.ts';
import type { JobResult } from '../systems/system.ts';

const MIB = 2 ** 20;
const MB = 1e6;

/** So many sessions at once, each with a prompt and an answer of so many tokens. */
export interface Load {
  readonly sessions: number;
  readonly prompt: number;
  readonly output: number;
}

/** What the contract measures of one job. */
export function measuresOf({ sessions, prompt, output }: Load, result: JobResult): Measures {
  const { prefillMs, decodeWallMs, decodeTokens = sessions * (output - 1), stepMs, memoryMiB, cpuS } = result;
  return {
    decode: round(decodeTokens / decodeWallMs * 1000),
    prefill: round(sessions * prompt / prefillMs * 1000),
    prefill_ms: round(prefillMs),
    decode_ms: round(decodeWallMs),
    decode_tokens: decodeTokens,
    step_p10_ms: round(quantile(stepMs, 0.1)),
    step_p50_ms: round(quantile(stepMs, 0.5)),
    step_p95_ms: round(quantile(stepMs, 0.95)),
    memory_mib: Math.round(memoryMiB.reduce((sum, mib) => sum + mib, 0)),
    memory_each_mib: [...memoryMiB],
    // Of all tokens that went through the model, the prompt's included: programs do not tell them apart.
    cpu_ms_per_token: round(cpuS * 1000 / (sessions * (prompt + output - 1))),
  };
}

/** What a token of one session may take, given what computing it takes: in one process (R3), or at both stages (M.law). */
export function lawMs(computeMs: number, delayMs: number): number {
  const least = computeMs + 2 * delayMs;
  return least + Math.max(R3_ALLOWANCE.ms, R3_ALLOWANCE.share * least);
}

/** R7: what a worker may hold. */
export function memoryBoundMiB({ weightBytes, kvBytes }: Pick<ShardNow, 'weightBytes' | 'kvBytes'>): number {
  return (MEMORY.factor * weightBytes + kvBytes + MEMORY.besidesMB * MB) / MIB;
}
