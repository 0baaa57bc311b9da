import os from 'node:os';
import path from 'node:path';
import { z } from 'zod';
import { LineProgram } from '../systems/line-program.ts';
import { BIN, pinned } from '../systems/native.ts';
import { stopAll } from '../systems/stop-all.ts';

/** It takes a second on an idle machine. */
const ANSWER_MS = 60_000;

const Answer = z.object({ probe_ms: z.number().positive() });

/** Always the same work that belongs to no system; its time tells whether the machine was left alone. */
export interface Probe {
  /** Milliseconds. */
  take(signal: AbortSignal): Promise<number>;
  stop(): Promise<void>;
}

/** Cores beyond these are not watched: each takes its own memory. */
const MOST_CORES = 8;

/** Reading memory and multiplying, by `meshnet-bench-limits`, on every core at once: the slowest one counts. */
export function nativeProbe(): Probe {
  const cores = Array.from({ length: Math.min(os.availableParallelism(), MOST_CORES) }, (_, core) => core);
  const programs = cores.map((core) => new LineProgram(...pinned(core, [path.join(BIN, 'meshnet-bench-limits'), '--probe'])));
  return {
    take: async (signal) => {
      const answers = await Promise.all(programs.map((program) => program.ask('probe', { timeoutMs: ANSWER_MS, signal })));
      return Math.max(...answers.map((answer) => Answer.parse(answer).probe_ms));
    },
    stop: () => stopAll(programs),
  };
}
