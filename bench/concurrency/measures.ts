import { measuresOf, type Load } from '../mesh/measures.ts';
import { requireDirect } from '../mesh/paths.ts';
import { budgetMeasures } from '../mesh/token-budget.ts';
import type { Measures } from '../runner/rounds.ts';
import { quantile, round } from '../runner/statistics.ts';
import type { LateResult, MeshResult } from '../systems/mesh-system.ts';

type Times = readonly (readonly number[])[];

/** What the mesh gave, its token times counted once all sessions are under way. */
export function meshMeasures(load: Load, result: MeshResult): Measures {
  const { openMs, timesMs, stages, paths } = result;
  requireDirect(paths);
  const stepMs = stepsTogether(timesMs);
  return {
    ...measuresOf(load, { ...result, stepMs }),
    open_ms: round(openMs),
    jain: round(jain(timesMs.map(speedOf))),
    together: round(together(timesMs)),
    ...budgetMeasures(stepMs.reduce((sum, ms) => sum + ms, 0) / stepMs.length, stages),
  };
}

/** What decoders had while a long prompt was worked on, and what it had. */
export function lateMeasures({ firstTokenMs, stepMs, paths }: LateResult): Measures {
  requireDirect(paths);
  return { ...tail(stepMs), first_token_ms: round(firstTokenMs) };
}

/** Decoders alone, once all are under way. */
export function decodersMeasures({ timesMs, paths }: MeshResult): Measures {
  requireDirect(paths);
  return tail(stepsTogether(timesMs));
}

function tail(stepMs: readonly number[]): Measures {
  return {
    step_p10_ms: round(quantile(stepMs, 0.1)), step_p50_ms: round(quantile(stepMs, 0.5)), step_p95_ms: round(quantile(stepMs, 0.95)),
    steps: stepMs.length,
  };
}

/** Times between tokens of one session that began when the last session had its first token, or later. */
export function stepsTogether(times: Times): number[] {
  const begin = lastFirst(times);
  return times.flatMap((own) => own.slice(1).flatMap((time, i) => {
    const before = own[i] ?? Number.NaN;
    return before >= begin ? [time - before] : [];
  }));
}

/** Jain's fairness of shares: 1 when all are equal, 1 ÷ n when one has everything. */
export function jain(shares: readonly number[]): number {
  const sum = shares.reduce((all, share) => all + share, 0);
  return sum ** 2 / (shares.length * shares.reduce((all, share) => all + share ** 2, 0));
}

/** Tokens per second after the first. */
function speedOf(times: readonly number[]): number {
  return (times.length - 1) / ((times.at(-1) ?? Number.NaN) - (times[0] ?? Number.NaN)) * 1000;
}

/** Of the time that `decode` is taken over, the share in which no session was over yet. */
function together(times: Times): number {
  const begin = lastFirst(times);
  const ends = times.map((own) => own.at(-1) ?? Number.NaN);
  return Math.max(0, Math.min(...ends) - begin) / (Math.max(...ends) - begin);
}

function lastFirst(times: Times): number {
  return Math.max(...times.map(([first = Number.NaN]) => first));
}
