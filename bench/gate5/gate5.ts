import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits, type MachineLimits } from '../limits/machine-limits.ts';
import { limitsOf } from '../mesh/limits.ts';
import { prepareModel, type Model } from '../mesh/model.ts';
import type { Network } from '../mesh/network.ts';
import { UBATCH } from '../mesh/systems.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { askedLanes, runLanes, type Skipped } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import type { LaneProgress } from '../runner/progress.ts';
import { flatRatios } from '../runner/record.ts';
import { DelayLine } from '../wan/delay-line.ts';
import { runFit } from './fit.ts';
import { contractLanes, laneKey, nameOf, smokeLanes, work, type Gate5Lane, type SpeedLane } from './lanes.ts';
import { Rig } from './rig.ts';
import { runLane } from './run-lane.ts';
import { slopes, tableOf } from './table.ts';

/**
 * Gate 5: the mesh against llama.cpp RPC and one process, over a delay line: speed, what a token costs a link, memory,
 * and what lives under a limit on memory. Every process has one thread and one core.
 */
export const gate5: Bench = async (options: BenchOptions) => {
  const { smoke, say, signal, wants } = options;
  const wanted = askedLanes('gate5', smoke ? smokeLanes() : contractLanes(), (lane) => wants(laneKey(lane)));
  const { items, impossible } = await possible(wanted);
  const model = await prepareModel(smoke ? 'generated' : '1b', { say, signal });
  const limits = await measureLimits({ cores: [0], signal, ...smoke ? { seconds: 0.01 } : {} });
  const run = new Run({ model, limits, options, speedLanes: items.filter((lane) => lane.kind !== 'fit') });
  const { lanes, skipped: failed } = await runLanes({
    items: items.map((lane) => ({ lane, name: nameOf(lane), work: work(lane) })), smoke, say, signal,
    run: (lane, steps) => run.lane(lane, steps),
    stop: () => run.stop(),
  });
  const skipped = [...impossible, ...failed];
  const { network, started, engine } = run.facts;
  return {
    bench: 'gate5',
    ratios: flatRatios(lanes),
    context: {
      machine: machine(), engine: started['ours']?.engine ?? engine, threads: 1, model: model.name, ubatch: UBATCH, network,
      started, skipped,
    },
    lanes,
    details: { limits, delays_per_token: slopes(lanes) },
    table: tableOf({ lanes, skipped }),
  };
};

/** What this machine allows, and why not the rest. */
async function possible(wanted: readonly Gate5Lane[]): Promise<{ items: Gate5Lane[]; impossible: Skipped[] }> {
  const noLine = await DelayLine.unavailable();
  const why = (lane: Gate5Lane): string | undefined => {
    if (lane.kind !== 'fit') {
      return noLine;
    }
    return lane.model === 'generated' ? 'a smoke run writes no model that a limit could keep out' : undefined;
  };
  return {
    items: wanted.filter((lane) => why(lane) === undefined),
    impossible: wanted.flatMap((lane) => {
      const reason = why(lane);
      return reason === undefined ? [] : [{ lane: nameOf(lane), why: reason }];
    }),
  };
}

interface RunParts {
  readonly model: Model;
  readonly limits: MachineLimits;
  readonly options: BenchOptions;
  readonly speedLanes: readonly SpeedLane[];
}

interface Facts {
  readonly network: Network['facts'];
  readonly started: Rig['started'];
  /** Of the shards of the fit lane. */
  readonly engine: string;
}

/** The rig of the speed lanes, started when the first of them begins, and started again after one has failed. */
class Run {
  readonly #parts: RunParts;
  #rig: Rig | undefined;
  #facts: Facts = { network: {}, started: {}, engine: 'none' };

  constructor(parts: RunParts) {
    this.#parts = parts;
  }

  get facts(): Facts {
    return this.#facts;
  }

  async lane(lane: Gate5Lane, steps: LaneProgress): Promise<LaneRecord> {
    const { model, limits, options: { smoke, signal } } = this.#parts;
    if (lane.kind === 'fit') {
      await this.stop();
      const { record, engine } = await runFit(lane, { model: model.file, signal, say: steps.say });
      this.#facts = { ...this.#facts, engine };
      steps.progress(1, 1);
      return record;
    }
    const { network, systems, shards } = await this.#started(steps);
    const record = await runLane(lane, { network, systems, shards, nEmbd: model.nEmbd }, { smoke, signal, ...steps });
    if (lane.kind === 'wire') {
      return record;
    }
    const loads = Object.fromEntries(lane.systems.map((name) => [name, lane]));
    return { ...record, limits: await limitsOf(loads, { record, file: model.file, machine: limits }) };
  }

  async stop(): Promise<void> {
    const rig = this.#rig;
    this.#rig = undefined;
    await rig?.stop();
  }

  async #started({ say }: LaneProgress): Promise<Rig> {
    const { model, speedLanes, options: { signal } } = this.#parts;
    this.#rig ??= await Rig.start(speedLanes, { model, say, signal });
    this.#facts = { ...this.#facts, network: this.#rig.network.facts, started: this.#rig.started };
    return this.#rig;
  }
}
