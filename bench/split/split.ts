import { loadConfig } from '../../src/config.ts';
import { MeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { machine, pressure, waitForQuiet } from '../runner/machine.ts';
import { generatedModel, stockProgram } from '../systems/native.ts';
import { runLane, UBATCH, type Lane, type LanePlan } from './split-lane.ts';
import { median, medianInterval, round } from '../runner/statistics.ts';

const REAL_MODEL = 'smollm2-135m-instruct';
const QUIET_MS = 120_000;

/**
 * What a split costs where it can only cost: two shards on the loopback against the whole model in one process, one
 * pinned thread a process, in ABBA pairs. Ratios are speeds, mesh over one process, so 1 is no loss. Real weights are
 * reported beside the 1.1B shape.
 */
export const split: Bench = async (options: BenchOptions) => {
  const stock = await stockProgram('llama-bench');
  const { plans, skipped } = await plan(options);
  const quiet = await waitForQuiet(options.smoke ? 0 : QUIET_MS, options.signal);
  const before = pressure();
  const lanes: Lane[] = [];
  for (const lanePlan of plans) {
    options.say(`${lanePlan.name}: starting its nodes`);
    lanes.push(await runLane(lanePlan, { stock, say: options.say }));
  }
  const summaries = lanes.map(summarise);
  const [first] = lanes as [Lane];
  return {
    bench: 'split',
    ratios: Object.assign({}, ...summaries.map(({ ratios }) => ratios)) as Record<string, number>,
    context: {
      machine: machine(), engine: first.engine, threads: 1, model: first.plan.name, ubatch: UBATCH, sessions: 1,
      lanes: lanes.map(({ plan: { name, prompt, output }, engine, paths, pairs, discarded, contended, workerPssMiB }) => ({
        model: name, prompt, output, engine, paths, pairs: pairs.length, discarded: discarded.length, contended, worker_pss_mib: workerPssMiB,
      })),
      skipped, contended: !quiet || lanes.some(({ contended }) => contended), pressure: { before, after: pressure() },
    },
    details: {
      intervals: Object.assign({}, ...summaries.map(({ intervals }) => intervals)) as unknown,
      lanes: lanes.map(({ plan: { name }, pairs, discarded }) => ({ model: name, pairs, discarded })),
    },
    table: [
      ...summaries.flatMap(({ table }) => table),
      ...skipped.map(({ model, why }) => `split: ${model} skipped: ${why}`),
    ],
  };
};

interface Skipped {
  readonly model: string;
  readonly why: string;
}

async function plan({ smoke, signal, say }: BenchOptions): Promise<{ plans: LanePlan[]; skipped: Skipped[] }> {
  if (smoke) {
    const model = await generatedModel({ layers: 4, type: 'q4_0' });
    const small = { prefix: '', model, name: 'generated, 4 layers, q4_0', prompt: 32, output: 8, pairs: 1, extraPairs: 0 };
    return { plans: [small], skipped: [{ model: REAL_MODEL, why: 'a smoke run downloads nothing' }] };
  }
  const common = { prompt: 384, output: 64, pairs: 6, extraPairs: 4 };
  say('making the 1.1B model, unless it is there');
  const shape = { ...common, prefix: '', model: await generatedModel({ preset: '1b' }), name: '1.1B shape, q4_0' };
  try {
    const { path } = await configuredModels(loadConfig({})).resolve(REAL_MODEL, { signal });
    return { plans: [shape, { ...common, prefix: 'smollm2_', model: path, name: `${REAL_MODEL}, q4_1` }], skipped: [] };
  } catch (err) {
    if (!(err instanceof MeshnetError)) {
      throw err;
    }
    return { plans: [shape], skipped: [{ model: REAL_MODEL, why: `${err.code}: ${err.message}` }] };
  }
}

interface Summary {
  readonly ratios: Record<string, number>;
  readonly intervals: Record<string, number[]>;
  readonly table: string[];
}

function summarise({ plan: { prefix, name, prompt, output }, paths, pairs, discarded, contended }: Lane): Summary {
  const values = {
    decode_mesh_over_one_process: pairs.map(({ one, mesh }) => one.decodeMs / mesh.decodeMs),
    prefill_mesh_over_one_process: pairs.map(({ one, mesh }) => one.prefillMs / mesh.prefillMs),
    // llama-bench knows means only.
    decode_one_process_over_stock: pairs.map(({ one, stock }) => stock.decodeMs / one.decodeMeanMs),
    prefill_one_process_over_stock: pairs.map(({ one, stock }) => stock.prefillMs / one.prefillMs),
  };
  const ratios: Record<string, number> = {};
  const intervals: Record<string, number[]> = {};
  const table = [
    `split: ${name}, ${prompt} + ${output} tokens, one thread a process, ${paths.join(', ')}, ${pairs.length} pairs, ` +
      `${discarded.length} discarded${contended ? ', on a busy machine' : ''}`,
  ];
  for (const [key, all] of Object.entries(values)) {
    const interval = medianInterval(all).map((value) => round(value));
    ratios[prefix + key] = round(median(all));
    intervals[prefix + key] = interval;
    table.push(`  ${(prefix + key).padEnd(42)} ${ratios[prefix + key]}  [${interval.join(', ')}]`);
  }
  table.push(`  token ${median(pairs.map(({ one }) => one.decodeMs)).toFixed(2)} ms in one process, ` +
    `${median(pairs.map(({ mesh }) => mesh.decodeMs)).toFixed(2)} in the mesh, ${median(pairs.map(({ stock }) => stock.decodeMs)).toFixed(2)} stock`);
  return { ratios, intervals, table };
}
