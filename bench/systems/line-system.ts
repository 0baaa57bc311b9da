import { z } from 'zod';
import { MeshnetError } from '../../src/errors.ts';
import { LineProgram } from './line-program.ts';
import { pinned } from './native.ts';
import type { Job, JobResult, Started, System } from './system.ts';

/** Loading a gigabyte on a slow disk, and importing a framework. */
const START_MS = 600_000;
/** The longest job of any lane takes minutes; nothing waits for ever. */
const JOB_MS = 1_800_000;

export interface LineSystemOptions {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  /** The cores that it is pinned to. */
  readonly cores: readonly number[];
  readonly env?: Readonly<Record<string, string>>;
  /** @default 600,000 */
  readonly startTimeoutMs?: number;
  /** @default 1,800,000 */
  readonly jobTimeoutMs?: number;
}

const Ready = z.object({ ready: z.literal(true), engine: z.string(), weight_bytes: z.number(), load_ms: z.number() });

const Answer = z.object({
  prefill_ms: z.number(),
  decode_wall_ms: z.number(),
  step_ms: z.array(z.number()),
  tokens: z.array(z.array(z.int())),
  peak_mib: z.number(),
  cpu_s: z.number(),
  compute_ms: z.number().optional(),
  sample_ms: z.number().optional(),
});

/** One process with the whole model, spoken to line by line: started with its options, then one line of JSON a job. */
export class LineSystem implements System {
  readonly name: string;
  readonly #options: LineSystemOptions;
  #program: LineProgram | undefined;

  constructor(options: LineSystemOptions) {
    this.name = options.name;
    this.#options = options;
  }

  get pid(): number {
    return this.#program?.pid ?? 0;
  }

  async start(signal: AbortSignal): Promise<Started> {
    const { command, args, cores, env = {}, startTimeoutMs: timeoutMs = START_MS } = this.#options;
    const began = performance.now();
    this.#program = new LineProgram(...pinned(cores, [command, ...args]), { env });
    const ready = this.#read(Ready, await this.#program.next({ timeoutMs, signal }));
    return {
      engine: ready.engine, startMs: performance.now() - began, loadMs: ready.load_ms, weightBytes: ready.weight_bytes,
    };
  }

  async run({ prompts, output, sampling, pauseMs = 0 }: Job, signal: AbortSignal): Promise<JobResult> {
    if (this.#program === undefined) {
      throw new MeshnetError('INTERNAL', `${this.name} was not started`);
    }
    const request = JSON.stringify({
      prompts, output,
      ...pauseMs === 0 ? {} : { pause_ms: Math.round(pauseMs) },
      sampling: sampling === undefined ? null
        : { temperature: sampling.temperature, top_k: sampling.topK, top_p: sampling.topP, seed: sampling.seed },
    });
    const answer = this.#read(Answer, await this.#program.ask(request, { timeoutMs: this.#options.jobTimeoutMs ?? JOB_MS, signal }));
    if (answer.tokens.length !== prompts.length || answer.tokens.some(({ length }) => length !== output)) {
      throw new MeshnetError('INTERNAL', `${this.name} gave answers of another length than it was asked for`);
    }
    return {
      prefillMs: answer.prefill_ms, decodeWallMs: answer.decode_wall_ms, stepMs: answer.step_ms, tokens: answer.tokens,
      memoryMiB: [answer.peak_mib], cpuS: answer.cpu_s, computeMs: answer.compute_ms, sampleMs: answer.sample_ms,
    };
  }

  async stop(): Promise<void> {
    await this.#program?.stop();
    this.#program = undefined;
  }

  #read<T>(schema: z.ZodType<T>, line: unknown): T {
    const { success, data, error } = schema.safeParse(line);
    if (!success) {
      const { error: said } = z.object({ error: z.string() }).safeParse(line).data ?? {};
      throw new MeshnetError('INTERNAL', `${this.name}: ${said ?? z.prettifyError(error)}`);
    }
    return data;
  }
}
