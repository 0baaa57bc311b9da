import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { pinned, run } from './native.ts';

/** Of one run, the loading of the weights included. */
const RUN_MS = 600_000;
/** Of every sequence's context. */
const CONTEXT_BLOCK = 256;
const UBATCH = 512;

export interface BatchedBenchOptions {
  /** `llama-batched-bench` of the unpatched tree. */
  readonly program: string;
  readonly model: string;
  readonly core: number;
  readonly sessions: number;
  /** Tokens of each prompt. */
  readonly prompt: number;
  /** Decode steps of each session, and those before them that are not counted. */
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
    '-npp', String(prompt), '-ntg', `${warmUp},${steps}`, '-npl', String(sessions), '--output-format', 'jsonl',
  ]);
  const { stdout } = await run(command, args, { signal, timeout: RUN_MS });
  return readResult(stdout, { sessions, prompt, steps });
}

/** The last line of JSON: what came before it was to warm up. @throws {MeshnetError} INTERNAL when it tells of something else */
export function readResult(
  stdout: string, { sessions, prompt, steps }: Pick<BatchedBenchOptions, 'sessions' | 'prompt' | 'steps'>,
): BatchedBenchResult {
  const text = stdout.split('\n').findLast((line) => line.startsWith('{')) ?? 'null';
  const { data: line } = Line.safeParse(JSON.parse(text));
  if (line?.pp !== prompt || line.tg !== steps || line.pl !== sessions) {
    throw new MeshnetError('INTERNAL', `llama-batched-bench did not measure what it was asked for: ${text}`);
  }
  return { prefill: line.speed_pp, decode: line.speed_tg };
}
