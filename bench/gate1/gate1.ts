import os from 'node:os';
import { MeshnetError } from '../../src/errors.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits } from '../limits/machine-limits.ts';
import { laneName, type LaneKey, type LaneRecord } from '../runner/lane-record.ts';
import { askedLanes, runLanes } from '../runner/lanes.ts';
import { machine } from '../runner/machine.ts';
import { flatRatios } from '../runner/record.ts';
import { cheapFirst, contractLanes, laneKey, smokeLanes, work, type GateLane, type ModelName } from './lanes.ts';
import { limitsOf } from './limits.ts';
import { answer, questionKey, QUESTIONS, type Question } from './quality.ts';
import { findReference, INSTALL } from './reference.ts';
import { runLane } from './run-lane.ts';
import { systemsOf, UBATCH } from './systems.ts';
import { tableOf } from './table.ts';
import { prepareWeights, type Weights } from './weights.ts';

/** Of one of the two, in the measure of `work`. */
const QUESTION_WORK = 500_000;

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
  const cores = Array.from({ length: os.availableParallelism() }, (_, core) => core);
  const items = askedLanes('gate1', itemsOf(smoke), ({ key }) => wants(key));
  const weights = new Map<ModelName, Weights>();
  for (const model of new Set(items.map((item) => item.model))) {
    weights.set(model, await prepareWeights(model, { reference, say, signal }));
  }
  say('what this machine can do at most');
  const limits = await measureLimits({ cores, signal, ...(smoke ? { seconds: 0.01 } : {}) });
  const engines: Record<string, string> = {};
  const { lanes: measured, skipped: failed } = await runLanes({
    items: items.map((item) => ({ lane: item, name: laneName(item.key), work: item.work })),
    smoke,
    say,
    signal,
    run: async (item, steps) => {
      const parts = { weights: weights.get(item.model) as Weights, reference, cores };
      if (item.question !== undefined) {
        if (item.question !== 'agreement' && reference === undefined) {
          steps.progress(1, 1);
          return undefined;
        }
        const { record, engine } = await answer(item.question, { ...parts, signal, say: steps.say });
        engines['f32'] = engine;
        steps.progress(1, 1);
        return record;
      }
      const { record, started } = await runLane(item.lane, systemsOf(item.lane, parts), { smoke, signal, ...steps });
      Object.assign(engines, Object.fromEntries(Object.entries(started).map(([name, { engine }]) => [name, engine])));
      return { ...record, ...(await limitsOf(item.lane, { record, weights: parts.weights, machine: limits })) };
    },
  });
  const skipped = [
    ...(reference === undefined ? [{ lane: 'every Transformers system', why: `not installed; ${INSTALL}` }] : []),
    ...failed,
  ];
  const lanes = inOrder(measured, smoke);
  return {
    bench: 'gate1',
    ratios: flatRatios(lanes),
    context: {
      machine: machine(),
      engine: engines['f16'] ?? engines['f32'] ?? 'none',
      threads: cores.length,
      model: [...weights.keys()].join(', '),
      engines,
      ubatch: UBATCH,
      skipped,
      weights: Object.fromEntries([...weights].map(([model, { source, tensors }]) => [model, { source, tensors }])),
    },
    lanes,
    details: { limits },
    table: tableOf({ lanes, skipped, smoke }),
  };
};

/** Speed of one lane, or a question about quality. */
type Item = { readonly model: ModelName; readonly key: LaneKey; readonly work: number } & (
  { readonly question: Question } | { readonly question?: never; readonly lane: GateLane }
);

/** Quality first: it takes minutes, and without it the rest decides nothing. */
function itemsOf(smoke: boolean): Item[] {
  const lanes = smoke ? smokeLanes() : contractLanes();
  const model: ModelName = smoke ? 'generated' : 'smollm2';
  return [
    ...QUESTIONS.map((question): Item => ({
      model,
      question,
      key: questionKey(model, question),
      work: smoke ? 1 : QUESTION_WORK,
    })),
    ...cheapFirst(lanes).map((lane): Item => ({ model: lane.model, lane, key: laneKey(lane), work: work(lane) })),
  ];
}

/** As the contract lists them, whatever ran first. */
function inOrder(measured: readonly LaneRecord[], smoke: boolean): LaneRecord[] {
  const names = (smoke ? smokeLanes() : contractLanes()).map((lane) => laneName(laneKey(lane)));
  const place = ({ key }: LaneRecord): number => names.indexOf(laneName(key));
  return measured.toSorted((a, b) => place(a) - place(b));
}
