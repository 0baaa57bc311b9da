import path from 'node:path';
import { pressure } from '../runner/machine.ts';
import { MeshSystem, type MeshResult } from '../systems/mesh-system.ts';
import { LineProgram } from '../systems/line-program.ts';
import { BIN, pinned, run } from '../systems/native.ts';
import { loopback } from '../systems/place.ts';
import { median, quantile } from '../runner/statistics.ts';

export const UBATCH = 256;
/** A pair counts only when the same fixed run took the same time, within this share, before and after it. */
const PROBE_TOLERANCE = 0.1;
const PROBE = '16 24';
const ANSWER = { timeoutMs: 300_000 };
const WARM_UP = { prompt: 32, output: 8 };
/** Of the mesh's workers: far above what one session needs. */
const CELLS = 8192;
const SESSIONS = 16;

export interface LanePlan {
  /** Before the names of this lane's ratios. */
  readonly prefix: string;
  readonly model: string;
  readonly name: string;
  readonly prompt: number;
  readonly output: number;
  readonly pairs: number;
  /** How many disturbed pairs may be replaced. */
  readonly extraPairs: number;
}

interface Speed {
  readonly prefillMs: number;
  /** Median of a token. */
  readonly decodeMs: number;
}

export interface Pair {
  readonly order: string;
  readonly one: Speed & { readonly decodeMeanMs: number };
  readonly mesh: Speed & { readonly decodeMeanMs: number; readonly p95Ms: number; readonly openMs: number };
  readonly stock: Speed;
  /** Of the fixed run, after it over before it. */
  readonly probe: number;
  readonly pressure: ReturnType<typeof pressure>;
}

export interface Lane {
  readonly plan: LanePlan;
  readonly engine: string;
  readonly paths: string[];
  readonly pairs: Pair[];
  readonly discarded: Pair[];
  /** Too few undisturbed pairs: all of them count. */
  readonly contended: boolean;
  readonly workerPssMiB: number[];
}

interface OneRun {
  readonly prefill_ms: number;
  readonly decode_ms: number[];
}

/** One model: mesh, one process and llama-bench by turns. */
export async function runLane(plan: LanePlan, { stock, say }: { stock: string; say: (text: string) => void }): Promise<Lane> {
  const mesh = new MeshSystem('mesh', {
    model: plan.model, places: [loopback(0), loopback(1)], cells: CELLS, sessions: SESSIONS, ubatch: UBATCH,
  });
  await mesh.start(new AbortController().signal);
  const one = new LineProgram(...pinned(0, [
    path.join(BIN, 'meshnet-bench-shard'), '--model', plan.model, '--threads', '1', '--ubatch', String(UBATCH),
  ]));
  try {
    const { engine_class: engine } = await one.next<{ engine_class: string }>(ANSWER);
    await one.ask<OneRun>(`${WARM_UP.prompt} ${WARM_UP.output}`, ANSWER);
    let { paths, memoryMiB } = await meshRun(mesh, WARM_UP);
    const good: Pair[] = [];
    const disturbed: Pair[] = [];
    while (good.length < plan.pairs && disturbed.length <= plan.extraPairs) {
      const n = good.length + disturbed.length;
      const before = await probe(one);
      const measured = await runPair(plan, { mesh, one, stock, meshFirst: n % 2 === 1 });
      const pair = { ...measured.pair, probe: await probe(one) / before, pressure: pressure() };
      ({ paths, memoryMiB } = measured);
      const moved = Math.abs(pair.probe - 1) > PROBE_TOLERANCE;
      (moved ? disturbed : good).push(pair);
      say(`pair ${n + 1}: ${describe(pair)}${moved ? `; disturbed, the probe moved to ${pair.probe.toFixed(2)}` : ''}`);
    }
    const contended = good.length < plan.pairs;
    return {
      plan, engine, paths: [...paths], contended,
      pairs: contended ? [...good, ...disturbed] : good,
      discarded: contended ? [] : disturbed,
      workerPssMiB: [...memoryMiB],
    };
  } finally {
    await one.stop();
    await mesh.stop();
  }
}

/** Median time of a token in a short run that is always the same. */
async function probe(one: LineProgram): Promise<number> {
  return median((await one.ask<OneRun>(PROBE, ANSWER)).decode_ms);
}

/** One session: a prompt of so many ids, then so many greedy tokens. */
async function meshRun(mesh: MeshSystem, { prompt, output }: Pick<LanePlan, 'prompt' | 'output'>): Promise<MeshResult> {
  const ids = Array.from({ length: prompt }, (_, i) => 100 + (i * 7919) % 31_000);
  return await mesh.run({ prompts: [ids], output }, new AbortController().signal);
}

interface PairParts {
  readonly mesh: MeshSystem;
  readonly one: LineProgram;
  readonly stock: string;
  readonly meshFirst: boolean;
}

async function runPair(
  plan: LanePlan,
  { mesh, one, stock, meshFirst }: PairParts,
): Promise<{ pair: Omit<Pair, 'probe' | 'pressure'> } & Pick<MeshResult, 'paths' | 'memoryMiB'>> {
  const ofStock = await stockRun(stock, plan);
  const early = meshFirst ? await meshRun(mesh, plan) : undefined;
  const alone = await one.ask<OneRun>(`${plan.prompt} ${plan.output}`, ANSWER);
  const together = early ?? await meshRun(mesh, plan);
  return {
    pair: { order: meshFirst ? 'mesh, one' : 'one, mesh', one: ofOne(alone), mesh: ofMesh(together), stock: ofStock },
    paths: together.paths, memoryMiB: together.memoryMiB,
  };
}

/** The first token after a prompt, and the median of the others: both as the user of one session meets them. */
function ofOne({ prefill_ms, decode_ms }: OneRun): Pair['one'] {
  return { prefillMs: prefill_ms, decodeMs: median(decode_ms), decodeMeanMs: mean(decode_ms) };
}

function ofMesh({ prefillMs, openMs, stepMs }: MeshResult): Pair['mesh'] {
  return { prefillMs, decodeMs: median(stepMs), decodeMeanMs: mean(stepMs), p95Ms: quantile(stepMs, 0.95), openMs };
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** llama-bench of the unpatched tree on the same core; its tokens follow a prompt of the same length. */
async function stockRun(program: string, { model, prompt, output }: LanePlan): Promise<Speed> {
  const milliseconds = async (args: readonly string[]): Promise<number> => {
    const [command, all] = pinned(0, [program, '-m', model, '-t', '1', '-ub', String(UBATCH), '-fa', '1', '-r', '1', '-o', 'json', ...args]);
    const { stdout } = await run(command, all);
    const [test] = JSON.parse(stdout) as { avg_ns: number }[];
    return (test?.avg_ns ?? Number.NaN) / 1e6;
  };
  return {
    prefillMs: await milliseconds(['-p', String(prompt), '-n', '0']),
    decodeMs: await milliseconds(['-p', '0', '-n', String(output), '-d', String(prompt)]) / output,
  };
}

function describe({ one, mesh, stock }: Pair): string {
  return `token ${one.decodeMs.toFixed(2)} ms in one process, ${mesh.decodeMs.toFixed(2)} in the mesh, ${stock.decodeMs.toFixed(2)} stock; ` +
    `prompt ${one.prefillMs.toFixed(0)}, ${mesh.prefillMs.toFixed(0)}, ${stock.prefillMs.toFixed(0)} ms`;
}
