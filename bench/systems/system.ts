/** What a system is asked to do: all prompts together, one session each, then so many tokens for every session. */
export interface Job {
  /** Token ids, `[sessions][context]`; all of one length. */
  readonly prompts: readonly (readonly number[])[];
  /** Tokens of every answer, the first one included; the end of generation is ignored. */
  readonly output: number;
  /** Greedy without it. */
  readonly sampling?: Sampling | undefined;
  /** Idle before each token after the first, ms; not part of any time. Programs with the whole model only. */
  readonly pauseMs?: number;
}

export interface Sampling {
  readonly temperature: number;
  readonly topK: number;
  readonly topP: number;
  readonly seed: number;
}

export interface JobResult {
  /** From the request until every session has its first token. */
  readonly prefillMs: number;
  /** From the last first token to the last token. */
  readonly decodeWallMs: number;
  /** Tokens that came in that time; unset: all but the first of each session. */
  readonly decodeTokens?: number;
  /** Times between tokens after the first: of each step, or of each session's tokens where sessions run apart. */
  readonly stepMs: readonly number[];
  /** `[sessions][output]` */
  readonly tokens: readonly (readonly number[])[];
  /** Of each process that holds weights, MiB: peak resident, or the proportional share in a mesh. */
  readonly memoryMiB: readonly number[];
  /** User and system time of these processes for this job. */
  readonly cpuS: number;
  /** Of all steps after the first token, where the system tells: in the model, and choosing tokens. */
  readonly computeMs?: number | undefined;
  readonly sampleMs?: number | undefined;
}

/** Something that is measured. Started once for a lane, then asked for one job a round. */
export interface System {
  readonly name: string;
  start(signal: AbortSignal): Promise<Started>;
  run(job: Job, signal: AbortSignal): Promise<JobResult>;
  stop(): Promise<void>;
}

export interface Started {
  /** Engine class, or the versions of a framework. */
  readonly engine: string;
  /** Process start to ready for a prompt. */
  readonly startMs: number;
  /** Of it the loading of the weights. */
  readonly loadMs: number;
  readonly weightBytes: number;
}
