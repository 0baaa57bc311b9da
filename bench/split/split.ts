import { loadConfig } from '../../src/config.ts';
import { MeshnetError, toMeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits } from '../limits/machine-limits.ts';
import { machine } from '../runner/machine.ts';
import { Progress } from '../runner/progress.ts';
import { generatedModel, stockProgram } from '../systems/native.ts';
import { keyOf, runLane, UBATCH, type Lane, type LanePlan } from './split-lane.ts';

const REAL_MODEL = 'smollm2-135m-instruct';

/**
 * What a split costs where it can only cost: two shards on the loopback against the whole model in one process, one
 * pinned thread a process. Ratios are speeds, mesh over one process, so 1 is no loss. Real weights are reported beside
 * the 1.1B shape.
 */
export const split: Bench = async (options: BenchOptions) => {
  const { plans, skipped } = await plan(options);
  const asked = plans.filter((one) => options.wants(keyOf(one)));
  if (asked.length === 0) {
    throw new MeshnetError('CONFIG_INVALID', 'no lane of split has that name', { details: { field: '--lanes' } });
  }
  const stock = await stockProgram('llama-bench');
  const progress = new Progress(asked.map(({ name, work }) => ({ name, work })), options.say);
  const limits = await measureLimits({ cores: [0], signal: options.signal, ...options.smoke ? { seconds: 0.01 } : {} });
  const lanes: Lane[] = [];
  for (const [i, lanePlan] of asked.entries()) {
    try {
      lanes.push(await runLane(lanePlan, { stock, limits, smoke: options.smoke, signal: options.signal, ...progress.lane(i) }));
    } catch (err) {
      // The first one's minutes are not lost with the second, nor by Ctrl-C.
      if (options.smoke || lanes.length === 0) {
        throw err;
      }
      const { code, message } = options.signal.aborted ? { code: 'CANCELLED', message: 'interrupted' } : toMeshnetError(err);
      skipped.push({ lane: lanePlan.name, why: `${code}: ${message}` });
    }
  }
  const [{ engine }] = lanes as [Lane];
  const records = lanes.map(({ record }) => record);
  return {
    bench: 'split',
    ratios: Object.assign({}, ...records.map(({ ratios }) => ratios)) as (typeof records)[0]['ratios'],
    context: {
      machine: machine(), engine, threads: 1, model: asked[0]?.name ?? '', ubatch: UBATCH,
      paths: [...new Set(lanes.flatMap(({ paths }) => paths))], skipped,
    },
    lanes: records,
    details: { limits },
    table: [
      ...lanes.flatMap(({ table }) => table),
      ...skipped.map(({ lane, why }) => `split: ${lane} skipped: ${why}`),
    ],
  };
};

interface Plans {
  readonly plans: (LanePlan & { readonly work: number })[];
  readonly skipped: { readonly lane: string; readonly why: string }[];
}

async function plan({ smoke, signal, say }: BenchOptions): Promise<Plans> {
  if (smoke) {
    const model = await generatedModel({ layers: 4, type: 'q4_0' });
    const small = { prefix: '', model, name: 'generated, 4 layers, q4_0', prompt: 32, output: 8, rounds: 1, work: 1 };
    return { plans: [small], skipped: [{ lane: REAL_MODEL, why: 'a smoke run downloads nothing' }] };
  }
  const common = { prompt: 384, output: 64, rounds: 6 };
  say('making the 1.1B model, unless it is there');
  const shape = { ...common, prefix: '', model: await generatedModel({ preset: '1b' }), name: '1.1B shape, q4_0', work: 3 };
  try {
    const { path } = await configuredModels(loadConfig({})).resolve(REAL_MODEL, { signal });
    return { plans: [shape, { ...common, prefix: 'smollm2_', model: path, name: `${REAL_MODEL}, q4_1`, work: 1 }], skipped: [] };
  } catch (err) {
    if (!(err instanceof MeshnetError)) {
      throw err;
    }
    return { plans: [shape], skipped: [{ lane: REAL_MODEL, why: `${err.code}: ${err.message}` }] };
  }
}
