import path from 'node:path';
import { pressure } from '../runner/machine.ts';
import { BenchMesh, type MeshRun } from '../systems/mesh.ts';
import { LineProgram } from '../systems/line-program.ts';
import { BIN, pinned, pssMiB, run } from '../systems/native.ts';
import { median, quantile } from '../runner/statistics.ts';

export const UBATCH = 256;
/** A pair counts only when the same fixed run took the same time, within this share, before and after it. */
const PROBE_TOLERANCE = 0.1;
const PROBE = '16 24';
const ANSWER = { timeoutMs: 300_000 };
const WARM_UP = { prompt: 32, output: 8 };

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
  const mesh = await BenchMesh.start(plan.model, 2);
  const one = new LineProgram(...pinned(0, [
    path.join(BIN, 'meshnet-bench-shard'), '--model', plan.model, '--threads', '1', '--ubatch', String(UBATCH),
  ]));
  try {
    const { engine_class: engine } = await one.next<{ engine_class: string }>(ANSWER);
    await one.ask<OneRun>(`${WARM_UP.prompt} ${WARM_UP.output}`, ANSWER);
    let { paths } = await mesh.run(WARM_UP.prompt, WARM_UP.output);
    const good: Pair[] = [];
    const disturbed: Pair[] = [];
    while (good.length < plan.pairs && disturbed.length <= plan.extraPairs) {
      const n = good.length + disturbed.length;
      const before = await probe(one);
      const measured = await runPair(plan, { mesh, one, stock, meshFirst: n % 2 === 1 });
      const pair = { ...measured.pair, probe: await probe(one) / before, pressure: pressure() };
      paths = measured.paths;
      const moved = Math.abs(pair.probe - 1) > PROBE_TOLERANCE;
      (moved ? disturbed : good).push(pair);
      say(`pair ${n + 1}: ${describe(pair)}${moved ? `; disturbed, the probe moved to ${pair.probe.toFixed(2)}` : ''}`);
    }
    const contended = good.length < plan.pairs;
    return {
      plan, engine, paths, contended,
      pairs: contended ? [...good, ...disturbed] : good,
      discarded: contended ? [] : disturbed,
      workerPssMiB: await Promise.all(mesh.workerPids.map((pid) => pssMiB(pid))),
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

interface PairParts {
  readonly mesh: BenchMesh;
  readonly one: LineProgram;
  readonly stock: string;
  readonly meshFirst: boolean;
}

async function runPair(
  plan: LanePlan,
  { mesh, one, stock, meshFirst }: PairParts,
): Promise<{ pair: Omit<Pair, 'probe' | 'pressure'>; paths: string[] }> {
  const ofStock = await stockRun(stock, plan);
  const early = meshFirst ? await mesh.run(plan.prompt, plan.output) : undefined;
  const alone = await one.ask<OneRun>(`${plan.prompt} ${plan.output}`, ANSWER);
  const together = early ?? await mesh.run(plan.prompt, plan.output);
  return {
    pair: { order: meshFirst ? 'mesh, one' : 'one, mesh', one: ofOne(alone), mesh: ofMesh(together), stock: ofStock },
    paths: together.paths,
  };
}

/** The first token after a prompt, and the median of the others: both as the user of one session meets them. */
function ofOne({ prefill_ms, decode_ms }: OneRun): Pair['one'] {
  return { prefillMs: prefill_ms, decodeMs: median(decode_ms), decodeMeanMs: mean(decode_ms) };
}

function ofMesh({ ttftMs, openMs, decodeMs }: MeshRun): Pair['mesh'] {
  return { prefillMs: ttftMs, decodeMs: median(decodeMs), decodeMeanMs: mean(decodeMs), p95Ms: quantile(decodeMs, 0.95), openMs };
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
