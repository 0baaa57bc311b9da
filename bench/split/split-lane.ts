import path from 'node:path';
import { llamaRecipe } from '../limits/arithmetic.ts';
import { budgetLines, stepBudget } from '../limits/budget.ts';
import { laneReached, middleStep } from '../limits/lane-limits.ts';
import type { MachineLimits } from '../limits/machine-limits.ts';
import { readModelShape } from '../limits/model-shape.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts } from '../runner/prompts.ts';
import { ratioOf, roundsRecord, runRounds, type LaneOptions, type Measures, type Rounds } from '../runner/rounds.ts';
import { median, quantile, round } from '../runner/statistics.ts';
import { LineSystem } from '../systems/line-system.ts';
import { MeshSystem } from '../systems/mesh-system.ts';
import { BIN, pinned, run } from '../systems/native.ts';
import { loopback } from '../systems/place.ts';
import { stopAll } from '../systems/stop-all.ts';
import type { Job, JobResult } from '../systems/system.ts';

export const UBATCH = 256;
/** Cells are counted in blocks of so many. */
const CELL_BLOCK = 256;
/** Of one run of llama-bench. */
const STOCK_MS = 300_000;
/** Eight decode steps behind a first token. */
const WARM_UP = { prompt: 32, output: 9 };

export interface LanePlan {
  /** Before the names of this lane's ratios. */
  readonly prefix: string;
  readonly model: string;
  readonly name: string;
  readonly prompt: number;
  readonly output: number;
  readonly rounds: number;
}

export interface LaneParts extends LaneOptions {
  /** llama-bench of the unpatched tree. */
  readonly stock: string;
  /** Of the machine with one thread. */
  readonly limits: MachineLimits;
}

export interface Lane {
  readonly record: LaneRecord;
  readonly engine: string;
  readonly paths: readonly string[];
  readonly table: readonly string[];
}

type Name = 'one' | 'mesh' | 'stock';

export function keyOf({ name, prompt, output }: LanePlan): Record<string, string | number> {
  return { model: name, prompt, output, sessions: 1 };
}

/** One model: one process, the mesh and llama-bench by turns, each process pinned to a core. */
export async function runLane(plan: LanePlan, { stock, limits, smoke, say, progress, signal }: LaneParts): Promise<Lane> {
  const cells = Math.ceil((plan.prompt + plan.output) / CELL_BLOCK) * CELL_BLOCK;
  const one = new LineSystem({
    name: 'one', command: path.join(BIN, 'meshnet-bench-whole'), cores: [0],
    args: ['--model', plan.model, '--threads', '1', '--cells', String(cells), '--sessions', '1', '--ubatch', String(UBATCH)],
  });
  const mesh = new MeshSystem('mesh', { model: plan.model, places: [loopback(0), loopback(1)], cells, sessions: 1, ubatch: UBATCH });
  try {
    say('starting one process and the nodes');
    const { engine } = await one.start(signal);
    await mesh.start(signal);
    await one.run(job(`${plan.name} warm up one`, WARM_UP), signal);
    let { paths } = await mesh.run(job(`${plan.name} warm up mesh`, WARM_UP), signal);
    const runs: Record<Name, (round: number) => Promise<Measures>> = {
      one: async (n) => ofJob(plan, await one.run(job(`${plan.name} ${n}`, plan), signal)),
      mesh: async (n) => {
        const result = await mesh.run(job(`${plan.name} ${n}`, plan), signal);
        paths = result.paths;
        return { ...ofJob(plan, result), open_ms: round(result.openMs) };
      },
      stock: () => stockRun(stock, plan, signal),
    };
    const rounds = await runRounds<Name>({
      systems: ['one', 'mesh', 'stock'], rounds: plan.rounds, smoke, say, progress, signal,
      run: async (name, n) => {
        const measures = await runs[name](n);
        say(`  ${name.padEnd(5)} decode ${String(measures['decode'])} tok/s, prefill ${String(measures['prefill'])} tok/s`);
        return measures;
      },
    });
    return await summarise(plan, { rounds, engine, paths, limits });
  } finally {
    await stopAll([one, mesh]);
  }
}

function job(seed: string, { prompt, output }: { readonly prompt: number; readonly output: number }): Job {
  return { prompts: prompts(seed, { sessions: 1, tokens: prompt }), output };
}

function ofJob({ prompt, output }: LanePlan, result: JobResult): Measures {
  const { prefillMs, decodeWallMs, stepMs, memoryMiB, cpuS, computeMs, sampleMs } = result;
  const perStep = (ms: number | undefined): number | null => ms === undefined ? null : round(ms / (output - 1));
  return {
    decode: round((output - 1) / decodeWallMs * 1000),
    prefill: round(prompt / prefillMs * 1000),
    step_p10_ms: round(quantile(stepMs, 0.1)),
    step_p50_ms: round(quantile(stepMs, 0.5)),
    step_p95_ms: round(quantile(stepMs, 0.95)),
    compute_ms: perStep(computeMs),
    sample_ms: perStep(sampleMs),
    memory_mib: memoryMiB,
    cpu_s: round(cpuS),
  };
}

/** llama-bench on the same core; its tokens follow a prompt of the same length. */
async function stockRun(program: string, { model, prompt, output }: LanePlan, signal: AbortSignal): Promise<Measures> {
  const milliseconds = async (args: readonly string[]): Promise<number> => {
    const common = ['-m', model, '-t', '1', '-ub', String(UBATCH), '-fa', '1', '-r', '1', '-o', 'json'];
    const [command, all] = pinned(0, [program, ...common, ...args]);
    const { stdout } = await run(command, all, { signal, timeout: STOCK_MS });
    const [test] = JSON.parse(stdout) as { avg_ns: number }[];
    return (test?.avg_ns ?? Number.NaN) / 1e6;
  };
  return {
    prefill: round(prompt / await milliseconds(['-p', String(prompt), '-n', '0']) * 1000),
    decode: round(output / await milliseconds(['-p', '0', '-n', String(output), '-d', String(prompt)]) * 1000),
  };
}

interface Ran {
  readonly rounds: Rounds<Name>;
  readonly engine: string;
  readonly paths: readonly string[];
  readonly limits: MachineLimits;
}

async function summarise(plan: LanePlan, { rounds, engine, paths, limits }: Ran): Promise<Lane> {
  const ratio = (measure: string, of: Name, over: Name) =>
    ratioOf(rounds, (runs) => Number(runs[of][measure]) / Number(runs[over][measure]));
  const ratios = Object.fromEntries(Object.entries({
    decode_mesh_over_one_process: ratio('decode', 'mesh', 'one'),
    prefill_mesh_over_one_process: ratio('prefill', 'mesh', 'one'),
    decode_one_process_over_stock: ratio('decode', 'one', 'stock'),
    prefill_one_process_over_stock: ratio('prefill', 'one', 'stock'),
  }).map(([name, value]) => [plan.prefix + name, value]));
  const { good, discarded, contended } = rounds;
  const middle = (name: Name, measure: string): number => median(good.map(({ runs }) => Number(runs[name][measure])));
  const absolute = (name: Name, measure: string): string => Number(middle(name, measure).toPrecision(3)).toString();
  const tail = (name: Name): string => ['step_p10_ms', 'step_p50_ms', 'step_p95_ms'].map((measure) => absolute(name, measure)).join(', ');
  const distance = await distanceOf(plan, limits, (measure) => middle('one', measure));
  return {
    engine, paths,
    record: {
      key: keyOf(plan), systems: ['one', 'mesh', 'stock'], ...roundsRecord(rounds), ratios,
      limits: distance.limits, budget: distance.budget,
    },
    table: [
      `split: ${plan.name}, ${plan.prompt} + ${plan.output} tokens, one thread a process, ${paths.join(', ')}, rounds: ${good.length}` +
        `${discarded.length > 0 ? `, ${discarded.length} discarded` : ''}${contended ? ', on a busy machine: judged by nothing' : ''}`,
      ...Object.entries(ratios).map(([name, { median: value, low, high }]) => `  ${name.padEnd(42)} ${value}  [${low}, ${high}]`),
      ...['decode', 'prefill'].map((measure) => `  ${measure}, tok/s: ` +
        `${absolute('one', measure)} in one process, ${absolute('mesh', measure)} in the mesh, ${absolute('stock', measure)} stock`),
      `  token, ms (p10, p50, p95): ${tail('one')} in one process; ${tail('mesh')} in the mesh`,
      ...distance.lines.map((line) => `  ${line}`),
    ],
  };
}

interface Distance {
  readonly limits: Record<string, unknown>;
  readonly budget: LaneRecord['budget'];
  readonly lines: readonly string[];
}

/** How near the one process came to what its core can do, and where the time of its token went. */
async function distanceOf(plan: LanePlan, limits: MachineLimits, middle: (measure: string) => number): Promise<Distance> {
  const shape = await readModelShape(plan.model);
  const lane = { shape, recipe: llamaRecipe(shape), limits, context: plan.prompt, output: plan.output, sessions: 1, ubatch: UBATCH };
  const stepMs = 1000 / middle('decode');
  const { lines, ...one } = laneReached('one process', lane, { stepMs, prefillMs: plan.prompt / middle('prefill') * 1000 });
  const budget = stepBudget({ stepMs, computeMs: middle('compute_ms'), sampleMs: middle('sample_ms'), work: middleStep(lane), limits });
  return { limits: { one }, budget, lines: [...lines, ...budgetLines(budget)] };
}
