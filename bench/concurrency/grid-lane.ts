import type { MachineLimits } from '../limits/machine-limits.ts';
import { ringLimit } from '../limits/ring.ts';
import { limitsOf } from '../mesh/limits.ts';
import { measuresOf, type Load } from '../mesh/measures.ts';
import { PATHS_NOTE } from '../mesh/paths.ts';
import { tokenBudget } from '../mesh/token-budget.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts, WARM_UP, warmUp } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { round } from '../runner/statistics.ts';
import { batchedBench } from '../systems/batched-bench.ts';
import { stockProgram } from '../systems/native.ts';
import { laneKey, loadsOf, nameOf, type GridLane, type SystemName } from './lanes.ts';
import { meshMeasures } from './measures.ts';
import { gridRatios } from './ratios.ts';
import { NEAR_CORE, type Rig } from './rig.ts';

const STAGES = 2;

/** Many sessions at one delay, one process with eight beside them. */
export async function runGrid(
  lane: GridLane, rig: Rig, { limits, ...options }: LaneOptions & { readonly limits: MachineLimits },
): Promise<LaneRecord> {
  const { smoke, say, signal } = options;
  const { network, one, mesh, model } = rig.parts;
  const loads = loadsOf(lane);
  // No other lane is lost where it cannot be built.
  const stock = loads.has('stock8') ? await stockProgram('llama-batched-bench') : '';
  await network.setDelay(lane.delay);
  for (const [system, { sessions }] of [[one, lane.loads.one8], [mesh, lane.loads.mesh]] as const) {
    await system.run(warmUp(`warm up ${nameOf(lane)} ${system.name}`, sessions), signal);
  }
  const rounds = await runRounds<SystemName>({
    ...options,
    systems: [...loads.keys()],
    run: async (name, n) => {
      const measures = await measure(name, loads.get(name) as Load, { parts: rig.parts, stock, seed: `${nameOf(lane)} ${n}`, signal });
      say(`  ${name.padEnd(6)} decode ${String(measures['decode'])} tok/s, token ${String(measures['step_p50_ms'] ?? '–')} ms`);
      return measures;
    },
  });
  const record = roundsRecord(rounds);
  const { sessions } = lane.loads.mesh;
  const { one8, mesh: asked } = lane.loads;
  const ring = ringLimit({ sessions, stages: STAGES, delayMs: lane.delay, stepMs: rig.stepMs });
  return {
    key: laneKey(lane), systems: [...loads.keys()], ...record,
    ratios: gridRatios(lane, rounds),
    limits: {
      ...await limitsOf({ one8, mesh: asked }, { record, file: model.file, machine: limits }),
      ...ring === undefined ? {} : { ring },
    },
    ...sessions === 1 && !smoke ? { budget: tokenBudget(record, { system: 'mesh', delayMs: lane.delay }) } : {},
    notes: [`paths of the mesh: ${PATHS_NOTE}`],
  };
}

interface MeasureOptions {
  readonly parts: Rig['parts'];
  /** llama-batched-bench of the unpatched tree, where the lane wants it. */
  readonly stock: string;
  readonly seed: string;
  readonly signal: AbortSignal;
}

async function measure(name: SystemName, load: Load, { parts, stock, seed, signal }: MeasureOptions): Promise<Measures> {
  const { one, mesh, model } = parts;
  const { sessions, prompt, output } = load;
  if (name === 'stock8') {
    const { prefill, decode } = await batchedBench({
      program: stock, model: model.file, core: NEAR_CORE, sessions, prompt, steps: output - 1, warmUp: WARM_UP.output - 1, signal,
    });
    return { prefill: round(prefill), decode: round(decode) };
  }
  const job = { prompts: prompts(seed, { sessions, tokens: prompt }), output };
  return name === 'one8' ? measuresOf(load, await one.run(job, signal)) : meshMeasures(load, await mesh.run(job, signal));
}
