import { setTimeout } from 'node:timers/promises';
import { MeshnetError } from '../../src/errors.ts';

export interface UntilOptions {
  readonly withinMs: number;
  /** Between two looks. */
  readonly everyMs: number;
  readonly signal: AbortSignal;
}

/** Looks until it is so. @throws {MeshnetError} DEADLINE_EXCEEDED naming what was wanted; the reason of the signal */
export async function until(
  what: string, look: () => boolean | Promise<boolean>, { withinMs, everyMs, signal }: UntilOptions,
): Promise<void> {
  const deadline = performance.now() + withinMs;
  while (!await look()) {
    if (performance.now() > deadline) {
      throw new MeshnetError('DEADLINE_EXCEEDED', `not within ${withinMs} ms: ${what}`, { details: { withinMs } });
    }
    await setTimeout(everyMs, undefined, { signal });
  }
}
