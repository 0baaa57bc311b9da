import type { Measures } from '../runner/rounds.ts';
import { quantile, round } from '../runner/statistics.ts';
import type { JobResult, Started } from '../systems/system.ts';
import type { GateLane } from './lanes.ts';

/** What the contract measures of one job. A system starts once a lane: its start is the same in every round. */
export function measuresOf(
  { sessions, context, output }: GateLane,
  { started, result }: { started: Started; result: JobResult },
): Measures {
  const { prefillMs, decodeWallMs, stepMs, memoryMiB, cpuS, computeMs, sampleMs } = result;
  return {
    decode: round(((sessions * (output - 1)) / decodeWallMs) * 1000),
    prefill: round(((sessions * context) / prefillMs) * 1000),
    memory_mib: Math.round(memoryMiB.reduce((sum, mib) => sum + mib, 0)),
    // Of all tokens that went through the model, the prompt's included: programs do not tell them apart.
    cpu_ms_per_token: round((cpuS * 1000) / (sessions * (context + output - 1))),
    // Times in which the parts of a budget have to be found again.
    prefill_ms: round(prefillMs, 6),
    decode_ms: round(decodeWallMs, 6),
    step_p10_ms: round(quantile(stepMs, 0.1)),
    step_p50_ms: round(quantile(stepMs, 0.5)),
    step_p95_ms: round(quantile(stepMs, 0.95)),
    start_ms: round(started.startMs),
    load_ms: round(started.loadMs),
    ...(computeMs === undefined || sampleMs === undefined
      ? {}
      : { compute_ms: round(computeMs, 6), sample_ms: round(sampleMs, 6) }),
  };
}
