import os from 'node:os';
import { MeshnetError, toMeshnetError } from '../../src/errors.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { machine } from '../runner/machine.ts';
import { Progress } from '../runner/progress.ts';
import { flatRatios, laneName, type LaneRecord } from '../runner/record.ts';
import { contractLanes, laneKey, smokeLanes, work, type ModelName } from './lanes.ts';
import { findReference, INSTALL } from './reference.ts';
import { runLane } from './run-lane.ts';
import { systemsOf, UBATCH } from './systems.ts';
import { tableOf } from './table.ts';
import { prepareWeights, type Weights } from './weights.ts';

/** A lane that was asked for and could not be measured. */
export interface Skipped {
  readonly lane: string;
  readonly why: string;
}

/**
 * Gate 1: the Transformers recipe against whole-model llama.cpp on all cores, and what each number format costs in
 * quality. Prints go or stop by the contract.
 */
export const gate1: Bench = async (options: BenchOptions) => {
  const { smoke, say, signal, wants } = options;
  const reference = await findReference();
  if (reference === undefined && !smoke) {
    throw new MeshnetError('CONFIG_INVALID', `the Transformers recipe is not installed; install it by: ${INSTALL}`, {
      details: { field: 'bench/reference', command: INSTALL },
    });
  }
  const asked = (smoke ? smokeLanes() : contractLanes()).filter((lane) => wants(laneKey(lane)));
  const weights = new Map<ModelName, Weights>();
  for (const model of new Set(asked.map((lane) => lane.model))) {
    weights.set(model, await prepareWeights(model, { reference, say, signal }));
  }
  const cores = Array.from({ length: os.availableParallelism() }, (_, core) => core);
  const progress = new Progress(asked.map((lane) => ({ name: laneName(laneKey(lane)), work: work(lane) })), say);
  const lanes: LaneRecord[] = [];
  const engines: Record<string, string> = {};
  const skipped: Skipped[] = reference === undefined ? [{ lane: 'every Transformers system', why: `not installed; ${INSTALL}` }] : [];
  for (const [i, lane] of asked.entries()) {
    const steps = progress.lane(i);
    try {
      const systems = systemsOf(lane, { weights: weights.get(lane.model) as Weights, reference, cores });
      const { record, started } = await runLane(lane, systems, { smoke, signal, ...steps });
      Object.assign(engines, Object.fromEntries(Object.entries(started).map(([name, { engine }]) => [name, engine])));
      lanes.push(record);
    } catch (err) {
      if (smoke) {
        throw err;
      }
      // Lanes that took an hour are not lost with another one, nor by Ctrl-C.
      const { code, message } = signal.aborted ? { code: 'CANCELLED', message: 'interrupted' } : toMeshnetError(err);
      skipped.push({ lane: laneName(laneKey(lane)), why: `${code}: ${message}` });
      steps.say(`skipped: ${message}`);
    }
  }
  return {
    bench: 'gate1',
    ratios: flatRatios(lanes),
    context: {
      machine: machine(), engine: engines['f16'] ?? 'none', threads: cores.length, model: [...weights.keys()].join(', '),
      engines, ubatch: UBATCH, smoke, skipped,
      weights: Object.fromEntries([...weights].map(([model, { source, tensors }]) => [model, { source, tensors }])),
    },
    lanes,
    details: {},
    table: tableOf({ lanes, skipped, smoke }),
  };
};
