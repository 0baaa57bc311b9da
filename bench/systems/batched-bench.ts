import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { pinned, run } from './native.ts';

/** Of one run, the loading of the weights included. */
const RUN_MS = 600_000;
/** Of every sequence's context. */
const CONTEXT_BLOCK = 256;
const UBATCH = 512;
/** Of a last run, prompts and all, that nobody reads: the program may end before its log's thread has written what came last. */
const PARTING_STEPS = 1;

export interface BatchedBenchOptions {
  /** `llama-batched-bench` of the unpatched tree. */
  readonly program: string;
  readonly model: string;
  readonly core: number;
  readonly sessions: number;
  /** Tokens of each prompt. */
  readonly prompt: number;
  /** Decode steps of each session, and those before them that are not counted; other numbers, and both above one. */
  readonly steps: number;
  readonly warmUp: number;
  readonly signal: AbortSignal;
}

/** Tokens per second of all sequences together. */
export interface BatchedBenchResult {
  readonly prefill: number;
  readonly decode: number;
}

const Line = z.object({ pp: z.int(), tg: z.int(), pl: z.int(), speed_pp: z.number(), speed_tg: z.number() });

/** llama.cpp's own measure of many sequences in one process, with one thread on one core; its ids are its own. */
export async function batchedBench(options: BatchedBenchOptions): Promise<BatchedBenchResult> {
  const { program, model, core, sessions, prompt, steps, warmUp, signal } = options;
  const context = sessions * Math.ceil((prompt + steps) / CONTEXT_BLOCK) * CONTEXT_BLOCK;
  const [command, args] = pinned(core, [
    program, '-m', model, '-t', '1', '-c', String(context), '-ub', String(UBATCH), '-fa', 'on',
    '-npp', String(prompt), '-ntg', `${warmUp},${steps},${PARTING_STEPS}`, '-npl', String(sessions), '--output-format', 'jsonl',
  ]);
  const { stdout } = await run(command, args, { signal, timeout: RUN_MS });
  return readResult(stdout, { sessions, prompt, steps });
}

/** The last line about such a run, if there is one: what came before it was to warm up. @throws {MeshnetError} INTERNAL without one */
export function readResult(
  stdout: string, { sessions, prompt, steps }: Pick<BatchedBenchOptions, 'sessions' | 'prompt' | 'steps'>,
): BatchedBenchResult {
  const line = stdout.split('\n').filter((text) => text.startsWith('{')).map((text) => Line.safeParse(parsed(text)).data)
    .findLast((data) => data?.pp === prompt && data.tg === steps && data.pl === sessions);
  if (line === undefined) {
    throw new MeshnetError('INTERNAL', `llama-batched-bench did not measure what it was asked for: ${stdout}`);
  }
  return { prefill: line.speed_pp, decode: line.speed_tg };
}

/** One token of one session may take no time that can be told, and its speed is then no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
