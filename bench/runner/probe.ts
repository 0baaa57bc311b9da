import path from 'node:path';
import { z } from 'zod';
import { LineProgram } from '../systems/line-program.ts';
import { BIN } from '../systems/native.ts';

/** It takes a second on an idle machine. */
const ANSWER_MS = 60_000;

const Answer = z.object({ probe_ms: z.number().positive() });

/** Always the same work that belongs to no system; its time tells whether the machine was left alone. */
export interface Probe {
  /** Milliseconds. */
  take(signal: AbortSignal): Promise<number>;
  stop(): Promise<void>;
}

/** Reading memory and multiplying, by `meshnet-bench-limits`. */
export function nativeProbe(): Probe {
  const program = new LineProgram(path.join(BIN, 'meshnet-bench-limits'), ['--probe']);
  return {
    take: async (signal) => Answer.parse(await program.ask('probe', { timeoutMs: ANSWER_MS, signal })).probe_ms,
    stop: () => program.stop(),
  };
}
