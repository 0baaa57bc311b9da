import type { Bench, BenchOptions } from '../bench.ts';
import { POSITIONS, prepareModel, type Model } from '../mesh/model.ts';
import { UBATCH } from '../mesh/systems.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import { askedLanes, runLanes } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import type { LaneProgress } from '../runner/progress.ts';
import { runDisconnect } from './disconnect-lane.ts';
import { contractLanes, laneKey, nameOf, shapeOf, smokeLanes, work, type LoadLane } from './lanes.ts';
import { LoadMesh } from './load-mesh.ts';
import { runOverload } from './overload-lane.ts';
import { runStall } from './stall-lane.ts';
import { tableOf } from './table.ts';

/**
 * What a mesh does when others misbehave: a stage that stops reading, clients that leave, and ten times as many of them as
 * there is room for. Real nodes on the loopback, asked over HTTP.
 */
export const load: Bench = async (options: BenchOptions) => {
  const { smoke, say, signal, wants } = options;
  const wanted = askedLanes('load', smoke ? smokeLanes() : contractLanes(), (lane) => wants(laneKey(lane)));
  const name = smoke ? 'generated' : '1b';
  const model = await prepareModel(name, { say, signal });
  const run = new Run(model, options);
  const { lanes, skipped } = await runLanes({
    items: wanted.map((lane) => ({ lane, name: nameOf(lane), work: work(lane) })), smoke, say, signal,
    run: (lane, steps) => run.lane(lane, steps),
    stop: () => run.stop(),
  });
  return {
    bench: 'load',
    // Every name says its question.
    ratios: Object.fromEntries(lanes.flatMap(({ ratios }) => Object.entries(ratios))),
    context: {
      machine: machine(), engine: run.engine, threads: 1, model: model.name, ubatch: UBATCH, positions: POSITIONS[name], skipped,
    },
    lanes,
    details: {},
    table: tableOf({ lanes, skipped }),
  };
};

/** The mesh of the lane that runs; the next lane with the same shape has it too. */
class Run {
  readonly #model: Model;
  readonly #options: BenchOptions;
  #running: { readonly shape: string; readonly mesh: LoadMesh } | undefined;
  #engine = 'none';

  constructor(model: Model, options: BenchOptions) {
    this.#model = model;
    this.#options = options;
  }

  get engine(): string {
    return this.#engine;
  }

  async lane(lane: LoadLane, steps: LaneProgress): Promise<LaneRecord> {
    const { smoke, signal } = this.#options;
    const mesh = await this.#meshFor(lane, steps);
    const options = { smoke, signal, ...steps };
    switch (lane.kind) {
      case 'stall':
        return await runStall(lane, mesh, options);
      case 'disconnect':
        return await runDisconnect(lane, mesh, options);
      default:
        return await runOverload(lane, mesh, options);
    }
  }

  async stop(): Promise<void> {
    const mesh = this.#running?.mesh;
    this.#running = undefined;
    await mesh?.stop();
  }

  async #meshFor(lane: LoadLane, { say }: LaneProgress): Promise<LoadMesh> {
    const wanted = shapeOf(lane);
    const shape = JSON.stringify(wanted);
    if (this.#running?.shape !== shape) {
      await this.stop();
      say('starting the nodes');
      const mesh = await LoadMesh.start(this.#model.file, wanted, this.#options.signal);
      this.#running = { shape, mesh };
      this.#engine = mesh.engine;
    }
    return (this.#running as { mesh: LoadMesh }).mesh;
  }
}
