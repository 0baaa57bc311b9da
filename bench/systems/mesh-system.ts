import { setTimeout } from 'node:timers/promises';
import { MeshnetError } from '../../src/errors.ts';
import { cpuSeconds } from './cpu-time.ts';
import { BenchMesh, type MeshOptions, type ShardNow } from './mesh.ts';
import { pssMiB } from './native.ts';
import type { Job, JobResult, Started, System } from './system.ts';

/** A worker reports every second, and a session is over a moment after its last token. */
const REST_MS = 30_000;
const LOOK_EVERY_MS = 500;

export interface MeshResult extends JobResult {
  /** Of it the opening of the routes. */
  readonly openMs: number;
  /** When each token came, from the request on: `[sessions][output]`. */
  readonly timesMs: readonly (readonly number[])[];
  /** Kinds of paths of each route, stage by stage; one entry when all routes have the same. */
  readonly paths: readonly string[];
  /** Of a decode step at each stage, in the mean. */
  readonly stages: readonly StageTime[];
}

/** Sessions under way, beside which one more begins. */
export interface LateJob extends Job {
  readonly late: {
    readonly prompt: readonly number[];
    /** Tokens that each of the others has when it begins. */
    readonly after: number;
  };
}

export interface LateResult {
  /** From its request, the opening of its route included, to its first token. */
  readonly firstTokenMs: number;
  /** Times between tokens of the others, from its request until each has had one after its first token. */
  readonly stepMs: readonly number[];
  readonly paths: readonly string[];
}

/** A conversation of one prompt that goes on behind its answer. */
export interface TwoTurns extends Job {
  readonly more: readonly number[];
}

export interface SecondTurn {
  /** From the second request to its first token. */
  readonly firstTokenMs: number;
  /** Leading tokens of its prompt that every stage held. */
  readonly cached: number;
  readonly paths: readonly string[];
}

export interface StageTime {
  /** Of one step of one session at one stage, as its worker measured it. */
  readonly queueMs: number;
  readonly computeMs: number;
  /** From the end of computing until the frame was ready: sampling is in it at the last stage. */
  readonly handOverMs: number;
}

/** The mesh as a system: its time counts from the gateway's request to the tokens there. */
export class MeshSystem implements System {
  readonly name: string;
  readonly #options: MeshOptions;
  #mesh: BenchMesh | undefined;

  constructor(name: string, options: MeshOptions) {
    this.name = name;
    this.#options = options;
  }

  get workerPids(): readonly number[] {
    return this.#running.workerPids;
  }

  /** Of each stage's processes: node and worker. */
  get hosts(): readonly (readonly number[])[] {
    return this.#running.hosts;
  }

  async start(signal: AbortSignal): Promise<Started> {
    const began = performance.now();
    this.#mesh = await BenchMesh.start(this.#options, signal);
    const startMs = performance.now() - began;
    const shards = await this.shards(signal);
    return {
      engine: [...new Set(shards.map(({ engineClass }) => engineClass))].join(', '),
      startMs,
      // Nodes load while they join; what of the start is the loading of weights cannot be told apart.
      loadMs: startMs,
      weightBytes: shards.reduce((sum, { weightBytes }) => sum + weightBytes, 0),
    };
  }

  async run(job: Job, signal: AbortSignal): Promise<MeshResult> {
    const { prompts, output } = job;
    const mesh = this.#running;
    const cpuBefore = await cpuSeconds(mesh.pids);
    const answer = await mesh.ask(requestOf(job), signal);
    if (answer.tokens.length !== prompts.length || answer.tokens.some(({ length }) => length !== output)) {
      throw new MeshnetError('INTERNAL', `${this.name} gave answers of another length than it was asked for`);
    }
    return {
      prefillMs: answer.prefill_ms, decodeWallMs: answer.decode_wall_ms, decodeTokens: answer.decode_tokens,
      stepMs: answer.step_ms, timesMs: answer.times_ms, tokens: answer.tokens, openMs: answer.open_ms, paths: answer.paths,
      stages: answer.stages.map((stage) => ({ queueMs: stage.queue_ms, computeMs: stage.compute_ms, handOverMs: stage.hand_over_ms })),
      memoryMiB: await Promise.all(mesh.workerPids.map((pid) => pssMiB(pid))),
      cpuS: await cpuSeconds(mesh.pids) - cpuBefore,
    };
  }

  /** Ends the others once the late one has its first token; their answers are to be long enough for that. */
  async runBeside({ late, ...job }: LateJob, signal: AbortSignal): Promise<LateResult> {
    const answer = await this.#running.askBeside({ ...requestOf(job), late }, signal);
    return { firstTokenMs: answer.first_token_ms, stepMs: answer.step_ms, paths: answer.paths };
  }

  async runTwice({ more, ...job }: TwoTurns, signal: AbortSignal): Promise<SecondTurn> {
    const answer = await this.#running.askTwice({ ...requestOf(job), more }, signal);
    return { firstTokenMs: answer.first_token_ms, cached: answer.cached, paths: answer.paths };
  }

  /** What the nodes tell of their shards, stage by stage. */
  async shards(signal: AbortSignal): Promise<ShardNow[]> {
    const mesh = this.#running;
    return await Promise.all(this.#options.places.map((_, stage) => mesh.shard(stage, signal)));
  }

  /** The same once no session is left and so many positions were decoded since the workers started. */
  async shardsAtRest(decoded: number, signal: AbortSignal): Promise<ShardNow[]> {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(REST_MS)]);
    for (;;) {
      const shards = await this.shards(signal);
      if (shards.every((shard) => shard.lanes === 0 && shard.decoded >= decoded)) {
        return shards;
      }
      if (limit.aborted) {
        throw new MeshnetError('DEADLINE_EXCEEDED', `${this.name} is not at rest within ${REST_MS} ms`);
      }
      await setTimeout(LOOK_EVERY_MS, undefined, { signal });
    }
  }

  async stop(): Promise<void> {
    await this.#mesh?.stop();
    this.#mesh = undefined;
  }

  get #running(): BenchMesh {
    if (this.#mesh === undefined) {
      throw new MeshnetError('INTERNAL', `${this.name} was not started`);
    }
    return this.#mesh;
  }
}

/** As the gateway reads it. */
function requestOf({ prompts, output, sampling }: Job): object {
  return {
    prompts, output,
    sampling: sampling === undefined ? null
      : { temperature: sampling.temperature, top_k: sampling.topK, top_p: sampling.topP, seed: sampling.seed },
  };
}
