import type { LaneRecord } from '../runner/lane-record.ts';
import { prompts, warmUp } from '../runner/prompts.ts';
import { roundsRecord, runRounds, type LaneOptions, type Measures } from '../runner/rounds.ts';
import { intoPageCache } from '../systems/page-cache.ts';
import { stopAll } from '../systems/stop-all.ts';
import type { Started } from '../systems/system.ts';
import { laneKey, type GateLane } from './lanes.ts';
import { measuresOf } from './measures.ts';
import { ratiosAmongLlama, ratiosOf } from './ratios.ts';
import type { GateSystem, SystemName } from './systems.ts';

export interface RanLane {
  readonly record: LaneRecord;
  readonly started: Readonly<Partial<Record<SystemName, Started>>>;
}

/** All systems of a lane live at once, so that each round finds every one of them in the same state. */
export async function runLane(lane: GateLane, systems: readonly GateSystem[], options: LaneOptions): Promise<RanLane> {
  const { say, signal } = options;
  const { sessions, context, sampling, output } = lane;
  const key = laneKey(lane);
  const seed = Object.values(key).join('/');
  const started: Partial<Record<SystemName, Started>> = {};
  try {
    for (const { name, weights, system } of systems) {
      say(`starting ${name}`);
      await intoPageCache(weights, signal);
      started[name] = await system.start(signal);
      await system.run({ ...warmUp(`${seed} warm up`, sessions), sampling }, signal);
    }
    const rounds = await runRounds<SystemName>({
      ...options,
      systems: systems.map(({ name }) => name),
      run: async (name, round): Promise<Measures> => {
        const { system } = systems.find((one) => one.name === name) as GateSystem;
        const job = { prompts: prompts(`${seed} ${round}`, { sessions, tokens: context }), output, sampling };
        const measures = measuresOf(lane, { started: started[name] as Started, result: await system.run(job, signal) });
        say(`${name}: ${describe(measures)}`);
        return measures;
      },
    });
    return {
      started,
      record: {
        key,
        systems: systems.map(({ name }) => name),
        ...roundsRecord(rounds),
        ratios: 'torch_float32' in started ? ratiosOf(rounds) : ratiosAmongLlama(rounds),
      },
    };
  } finally {
    await stopAll(systems.map(({ system }) => system));
  }
}

function describe({ decode, prefill, memory_mib: memory }: Measures): string {
  return `decode ${String(decode)} tok/s, prefill ${String(prefill)} tok/s, ${String(memory)} MiB`;
}
