import { loadConfig } from '../../src/config.ts';
import { MeshnetError } from '../../src/errors.ts';
import { configuredModels } from '../../src/model/configured.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits } from '../limits/machine-limits.ts';
import { askedLanes, runLanes, type Skipped } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import { generatedModel, stockProgram } from '../systems/native.ts';
import { keyOf, runLane, UBATCH, type Lane, type LanePlan } from './split-lane.ts';

const REAL_MODEL = 'smollm2-135m-instruct';

/**
 * What a split costs where it can only cost: two shards on the loopback against the whole model in one process, one
 * pinned thread a process. Ratios are speeds, mesh over one process, so 1 is no loss. Real weights are reported beside
 * the 1.1B shape.
 */
export const split: Bench = async (options: BenchOptions) => {
  const { smoke, say, signal, wants } = options;
  const { plans, skipped: impossible } = await plan(options);
  const asked = askedLanes('split', plans, (one) => wants(keyOf(one)));
  const stock = await stockProgram('llama-bench');
  const limits = await measureLimits({ cores: [0], signal, ...smoke ? { seconds: 0.01 } : {} });
  const measured: Lane[] = [];
  const { lanes, skipped: failed } = await runLanes({
    items: asked.map((lane) => ({ lane, name: lane.name, work: lane.work })), smoke, say, signal,
    run: async (lane, steps) => {
      const ran = await runLane(lane, { stock, limits, smoke, signal, ...steps });
      measured.push(ran);
      return ran.record;
    },
  });
  const skipped = [...impossible, ...failed];
  return {
    bench: 'split',
    // Those of real weights have a prefix.
    ratios: Object.fromEntries(lanes.flatMap(({ ratios }) => Object.entries(ratios))),
    context: {
      machine: machine(), engine: measured[0]?.engine ?? 'none', threads: 1, model: asked[0]?.name ?? '', ubatch: UBATCH,
      paths: [...new Set(measured.flatMap(({ paths }) => paths))], skipped,
    },
    lanes,
    details: { limits },
    table: [
      ...measured.flatMap(({ table }) => table),
      ...skipped.map(({ lane, why }) => `split: ${lane} skipped: ${why}`),
    ],
  };
};

interface Plans {
  readonly plans: (LanePlan & { readonly work: number })[];
  readonly skipped: readonly Skipped[];
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
