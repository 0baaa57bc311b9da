import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits, type MachineLimits } from '../limits/machine-limits.ts';
import { POSITIONS, prepareModel, type Model } from '../mesh/model.ts';
import type { Network } from '../mesh/network.ts';
import { UBATCH } from '../mesh/systems.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { askedLanes, runLanes, type Skipped } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import type { LaneProgress } from '../runner/progress.ts';
import { DelayLine } from '../wan/delay-line.ts';
import { runGrid } from './grid-lane.ts';
import { contractLanes, laneKey, nameOf, smokeLanes, work, type ConcurrencyLane } from './lanes.ts';
import { runLong } from './long-lane.ts';
import { Rig } from './rig.ts';
import { tableOf } from './table.ts';
import { runWarm } from './warm-lane.ts';

/**
 * Many sessions on two shards over a delay line: speed of all of them and the time of a token, against one process with
 * eight and against theory; a long prompt among decoders; fairness; a conversation that goes on. Every process has one
 * thread and one core.
 */
export const concurrency: Bench = async (options: BenchOptions) => {
  const { smoke, say, signal, wants } = options;
  const wanted = askedLanes('concurrency', smoke ? smokeLanes() : contractLanes(), (lane) => wants(laneKey(lane)));
  const noLine = await DelayLine.unavailable();
  const items = noLine === undefined ? wanted : [];
  const impossible = noLine === undefined ? [] : wanted.map((lane): Skipped => ({ lane: nameOf(lane), why: noLine }));
  const name = smoke ? 'generated' : '1b';
  const model = await prepareModel(name, { say, signal });
  const limits = await measureLimits({ cores: [0], signal, ...smoke ? { seconds: 0.01 } : {} });
  const run = new Run({ model, limits, options, lanes: items });
  const { lanes, skipped: failed } = await runLanes({
    items: items.map((lane) => ({ lane, name: nameOf(lane), work: work(lane) })), smoke, say, signal,
    run: (lane, steps) => run.lane(lane, steps),
    stop: () => run.stop(),
  });
  const skipped = [...impossible, ...failed];
  const { network, started, stepMs } = run.facts;
  return {
    bench: 'concurrency',
    // Every name says its sessions and delay.
    ratios: Object.fromEntries(lanes.flatMap(({ ratios }) => Object.entries(ratios))),
    context: {
      machine: machine(), engine: started.mesh?.engine ?? 'none', threads: 1, model: model.name, ubatch: UBATCH,
      positions: POSITIONS[name], network, started, skipped,
    },
    lanes,
    details: { limits, one_process_step_ms: Object.fromEntries(stepMs) },
    table: tableOf({ lanes, skipped }),
  };
};

interface RunParts {
  readonly model: Model;
  readonly limits: MachineLimits;
  readonly options: BenchOptions;
  readonly lanes: readonly ConcurrencyLane[];
}

interface Facts extends Pick<Rig, 'started' | 'stepMs'> {
  readonly network: Network['facts'];
}

/** The rig of all lanes, started when the first of them begins, and started again after one has failed. */
class Run {
  readonly #parts: RunParts;
  #rig: Rig | undefined;
  #facts: Facts = { network: {}, started: {}, stepMs: new Map() };

  constructor(parts: RunParts) {
    this.#parts = parts;
  }

  get facts(): Facts {
    return this.#facts;
  }

  async lane(lane: ConcurrencyLane, steps: LaneProgress): Promise<LaneRecord> {
    const { limits, options: { smoke, signal } } = this.#parts;
    const rig = await this.#started(steps);
    switch (lane.kind) {
      case 'long':
        return await runLong(lane, rig, { smoke, signal, ...steps });
      case 'warm':
        return await runWarm(lane, rig, { smoke, signal, ...steps });
      default:
        return await runGrid(lane, rig, { smoke, signal, limits, ...steps });
    }
  }

  async stop(): Promise<void> {
    const rig = this.#rig;
    this.#rig = undefined;
    await rig?.stop();
  }

  async #started({ say }: LaneProgress): Promise<Rig> {
    const { model, lanes, options: { signal } } = this.#parts;
    this.#rig ??= await Rig.start(lanes, { model, say, signal });
    const { started, stepMs, parts: { network } } = this.#rig;
    this.#facts = { network: network.facts, started, stepMs };
    return this.#rig;
  }
}
