import { round } from '../runner/statistics.ts';
import type { CallEnd } from './call.ts';

type Times = readonly (readonly number[])[];

export interface Window {
  readonly from: number;
  readonly to: number;
}

/** Tokens per second of all sessions in a window. */
export function windowSpeed(times: Times, { from, to }: Window): number {
  return times.flat().filter((time) => time > from && time <= to).length / (to - from) * 1000;
}

/** Tokens per second of a session, in the mean over all sessions' time after their first token; 0 without one. */
export function sessionSpeed(times: Times): number {
  const tokens = times.reduce((sum, { length }) => sum + Math.max(0, length - 1), 0);
  const ms = times.reduce((sum, own) => sum + (own.at(-1) ?? 0) - (own[0] ?? 0), 0);
  return tokens === 0 ? 0 : tokens / ms * 1000;
}

/** An answer, a refusal that says when to come back, or what no client can do anything with. */
export type Outcome = 'answered' | 'refused_429' | 'refused_503' | 'untyped';

/** `tokens` came of `output` that were asked for. */
export function outcomeOf(
  { status, retryAfter, error, whole }: CallEnd, { tokens, output }: { readonly tokens: number; readonly output: number },
): Outcome {
  if (status === 200 && whole && tokens === output) {
    return 'answered';
  }
  const comeBack = retryAfter !== undefined && Number.isInteger(retryAfter) && retryAfter >= 1;
  const typed = error !== undefined && error.type !== '' && error.code !== null;
  if (!comeBack || !typed || (status !== 429 && status !== 503)) {
    return 'untyped';
  }
  return status === 429 ? 'refused_429' : 'refused_503';
}

export function countsOf(outcomes: readonly Outcome[]): Record<Outcome, number> {
  const count = (wanted: Outcome): number => outcomes.filter((outcome) => outcome === wanted).length;
  return {
    answered: count('answered'), refused_429: count('refused_429'), refused_503: count('refused_503'), untyped: count('untyped'),
  };
}

/** With one digit behind the point. */
export function mib(value: number): number {
  return round(Math.round(value * 10) / 10, 6);
}
