import path from 'node:path';
import type { Bench, BenchOptions, BenchResult } from './bench.ts';
import { machine, pressure } from './machine.ts';
import { BenchMesh, type MeshRun } from './mesh.ts';
import { BIN, generatedModel, LineProgram, pinned, run, STOCK_BIN } from './native.ts';
import { median, medianInterval, quantile, round } from './statistics.ts';

interface OneRun {
  readonly prefill_ms: number;
  readonly decode_ms: number[];
}

interface Plan {
  readonly model: string;
  readonly name: string;
  readonly prompt: number;
  readonly output: number;
  readonly pairs: number;
}

interface Pair {
  readonly order: string;
  readonly one: { prefillMs: number; decodeMs: number };
  readonly mesh: { prefillMs: number; decodeMs: number; p95Ms: number; openMs: number };
  readonly stock: { prefillMs: number; decodeMs: number } | undefined;
  readonly pressure: ReturnType<typeof pressure>;
}

/**
 * What a split costs where it can only cost: two shards on the loopback against the whole model in one process, one
 * pinned thread a process, in ABBA pairs. Ratios are speeds, mesh over one process, so 1 is no loss.
 */
export const split: Bench = async (options: BenchOptions): Promise<BenchResult> => {
  const plan: Plan = options.smoke
    ? { model: await generatedModel('smoke-q4_0.gguf', ['--type', 'q4_0', '--layers', '4']), name: 'generated 4 layers q4_0', prompt: 32, output: 8, pairs: 1 }
    : { model: await generatedModel('1b-q4_0.gguf', ['--preset', '1b']), name: '1.1B shape q4_0', prompt: 384, output: 64, pairs: 6 };
  const mesh = await BenchMesh.start(plan.model, 2);
  const one = new LineProgram(...pinned(0, [path.join(BIN, 'meshnet-bench-shard'), '--model', plan.model, '--threads', '1', '--ubatch', '256']));
  try {
    const { engine_class: engine } = await one.next<{ engine_class: string }>();
    await one.ask<OneRun>(`32 8`);
    await mesh.run(32, 8);
    const pairs: Pair[] = [];
    let paths: string[] = [];
    for (let i = 0; i < plan.pairs; i++) {
      const meshFirst = i % 2 === 1;
      const stock = await stockRun(plan);
      const first = meshFirst ? await mesh.run(plan.prompt, plan.output) : undefined;
      const alone = await one.ask<OneRun>(`${plan.prompt} ${plan.output}`);
      const together = first ?? await mesh.run(plan.prompt, plan.output);
      paths = together.paths;
      pairs.push({ order: meshFirst ? 'mesh, one' : 'one, mesh', one: ofOne(alone), mesh: ofMesh(together), stock, pressure: pressure() });
      options.say(`pair ${i + 1} of ${plan.pairs}: ${describe(pairs.at(-1) as Pair)}`);
    }
    return result(plan, { pairs, engine, paths });
  } finally {
    await one.stop();
    await mesh.stop();
  }
};

/** The first token after a prompt, and the median of the others: both as the user of one session meets them. */
function ofOne({ prefill_ms, decode_ms }: OneRun): Pair['one'] {
  return { prefillMs: prefill_ms, decodeMs: median(decode_ms) };
}

function ofMesh({ ttftMs, openMs, decodeMs }: MeshRun): Pair['mesh'] {
  return { prefillMs: ttftMs, decodeMs: median(decodeMs), p95Ms: quantile(decodeMs, 0.95), openMs };
}

/** llama-bench of the unpatched tree on the same core. */
async function stockRun({ model, prompt, output }: Plan): Promise<Pair['stock']> {
  const [command, args] = pinned(0, [
    path.join(STOCK_BIN, 'llama-bench'), '-m', model, '-t', '1', '-p', String(prompt), '-n', String(output), '-ub', '256', '-fa', '1', '-r', '1', '-o', 'json',
  ]);
  const { stdout } = await run(command, args);
  const tests = JSON.parse(stdout) as { n_prompt: number; n_gen: number; avg_ns: number }[];
  const prefill = tests.find((test) => test.n_prompt > 0 && test.n_gen === 0);
  const decode = tests.find((test) => test.n_gen > 0 && test.n_prompt === 0);
  return { prefillMs: (prefill?.avg_ns ?? Number.NaN) / 1e6, decodeMs: (decode?.avg_ns ?? Number.NaN) / 1e6 / output };
}

function describe({ one, mesh, stock }: Pair): string {
  return `token ${one.decodeMs.toFixed(2)} ms in one process, ${mesh.decodeMs.toFixed(2)} in the mesh, ${stock?.decodeMs.toFixed(2)} stock; ` +
    `prompt ${one.prefillMs.toFixed(0)}, ${mesh.prefillMs.toFixed(0)}, ${stock?.prefillMs.toFixed(0)} ms`;
}

function result(plan: Plan, { pairs, engine, paths }: { pairs: Pair[]; engine: string; paths: string[] }): BenchResult {
  const ratiosOf = {
    decode_mesh_over_one_process: pairs.map(({ one, mesh }) => one.decodeMs / mesh.decodeMs),
    prefill_mesh_over_one_process: pairs.map(({ one, mesh }) => one.prefillMs / mesh.prefillMs),
    decode_one_process_over_stock: pairs.map(({ one, stock }) => (stock?.decodeMs ?? Number.NaN) / one.decodeMs),
    prefill_one_process_over_stock: pairs.map(({ one, stock }) => (stock?.prefillMs ?? Number.NaN) / one.prefillMs),
  };
  const ratios = Object.fromEntries(Object.entries(ratiosOf).map(([name, values]) => [name, round(median(values))]));
  const intervals = Object.fromEntries(Object.entries(ratiosOf).map(([name, values]) => [name, medianInterval(values).map((value) => round(value))]));
  return {
    bench: 'split',
    ratios,
    context: {
      machine: machine(), engine, threads: 1, model: plan.name, prompt: plan.prompt, output: plan.output, ubatch: 256, sessions: 1,
      path: paths.join(', '), pairs: pairs.length,
    },
    details: { intervals, pairs },
    table: [
      `split: ${plan.name}, ${plan.prompt} + ${plan.output} tokens, one thread a process, ${paths.join(', ')}, ${pairs.length} pairs`,
      ...Object.keys(ratios).map((name) => `  ${name.padEnd(34)} ${ratios[name]}  [${(intervals[name] ?? []).join(', ')}]`),
    ],
  };
}
