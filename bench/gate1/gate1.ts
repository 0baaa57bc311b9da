import os from 'node:os';
import { MeshnetError, toMeshnetError } from '../../src/errors.ts';
import type { Bench, BenchOptions } from '../bench.ts';
import { measureLimits } from '../limits/machine-limits.ts';
import { asRecorded, laneName, type LaneKey, type LaneRecord } from '../runner/lane-record.ts';
import { machine } from '../runner/machine.ts';
import { Progress } from '../runner/progress.ts';
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
  const { smoke, say, signal } = options;
  const reference = await findReference();
  if (reference === undefined && !smoke) {
    throw new MeshnetError('CONFIG_INVALID', `the Transformers recipe is not installed; install it by: ${INSTALL}`, {
      details: { field: 'bench/reference', command: INSTALL },
    });
  }
  const cores = Array.from({ length: os.availableParallelism() }, (_, core) => core);
  const items = itemsOf(options);
  if (items.length === 0) {
    throw new MeshnetError('CONFIG_INVALID', 'no lane of gate1 has that name', { details: { field: '--lanes' } });
  }
  const weights = new Map<ModelName, Weights>();
  for (const model of new Set(items.map((item) => item.model))) {
    weights.set(model, await prepareWeights(model, { reference, say, signal }));
  }
  say('what this machine can do at most');
  const limits = await measureLimits({ cores, signal, ...(smoke ? { seconds: 0.01 } : {}) });
  const progress = new Progress(
    items.map((item) => ({ name: laneName(item.key), work: item.work })),
    say,
  );
  const measured: LaneRecord[] = [];
  const engines: Record<string, string> = {};
  const skipped: Skipped[] =
    reference === undefined ? [{ lane: 'every Transformers system', why: `not installed; ${INSTALL}` }] : [];
  for (const [i, item] of items.entries()) {
    const steps = progress.lane(i);
    const parts = { weights: weights.get(item.model) as Weights, reference, cores };
    try {
      if (item.question !== undefined) {
        if (item.question === 'agreement' || reference !== undefined) {
          const { record, engine } = await answer(item.question, { ...parts, signal, say: steps.say });
          engines['f32'] = engine;
          measured.push(asRecorded(record));
        }
        steps.progress(1, 1);
        continue;
      }
      const { record, started } = await runLane(item.lane, systemsOf(item.lane, parts), { smoke, signal, ...steps });
      Object.assign(engines, Object.fromEntries(Object.entries(started).map(([name, { engine }]) => [name, engine])));
      const more = await limitsOf(item.lane, { record, weights: parts.weights, machine: limits });
      measured.push(asRecorded({ ...record, ...more }));
    } catch (err) {
      if (smoke) {
        throw err;
      }
      // Lanes that took an hour are not lost with another one, nor by Ctrl-C.
      const { code, message } = signal.aborted ? { code: 'CANCELLED', message: 'interrupted' } : toMeshnetError(err);
      skipped.push({ lane: laneName(item.key), why: `${code}: ${message}` });
      steps.say(`skipped: ${message}`);
    }
  }
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
function itemsOf({ smoke, wants }: BenchOptions): Item[] {
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
  ].filter(({ key }) => wants(key));
}

/** As the contract lists them, whatever ran first. */
function inOrder(measured: readonly LaneRecord[], smoke: boolean): LaneRecord[] {
  const names = (smoke ? smokeLanes() : contractLanes()).map((lane) => laneName(laneKey(lane)));
  const place = ({ key }: LaneRecord): number => names.indexOf(laneName(key));
  return measured.toSorted((a, b) => place(a) - place(b));
}
