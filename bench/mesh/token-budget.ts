import { meshBudget, type BudgetPart } from '../limits/budget.ts';
import type { LaneRecord } from '../runner/lane-record.ts';
import type { Measures } from '../runner/rounds.ts';
import { median, round } from '../runner/statistics.ts';
import type { StageTime } from '../systems/mesh-system.ts';

/** What a token's budget is made of later: the mean of all steps, and each stage's part of it. */
export function budgetMeasures(stepMs: number, stages: readonly StageTime[]): Measures {
  return {
    step_mean_ms: round(stepMs),
    stage_queue_ms: stages.map(({ queueMs }) => round(queueMs)),
    stage_compute_ms: stages.map(({ computeMs }) => round(computeMs)),
    stage_hand_over_ms: stages.map(({ handOverMs }) => round(handOverMs)),
  };
}

export interface BudgetOf {
  /** Our mesh, by its name in the lane. */
  readonly system: string;
  /** One way, between neighbours. */
  readonly delayMs: number;
}

/** Where a token's time goes in our mesh, by the medians of the rounds; the last part is what nothing else explains. */
export function tokenBudget({ rounds }: Pick<LaneRecord, 'rounds'>, { system, delayMs }: BudgetOf): BudgetPart[] {
  const ours = rounds.map(({ runs }) => runs[system] ?? {});
  const lists = (name: string): readonly (readonly number[])[] =>
    ours.map((run) => run[name]).filter((value) => Array.isArray(value));
  const ofStage = (name: string, stage: number): number => median(lists(name).map((values) => values[stage] ?? Number.NaN));
  const stages = (lists('stage_compute_ms')[0] ?? []).map((_, stage) => ({
    queueMs: ofStage('stage_queue_ms', stage),
    computeMs: ofStage('stage_compute_ms', stage),
    handOverMs: ofStage('stage_hand_over_ms', stage),
  }));
  const stepMs = median(ours.map((run) => run['step_mean_ms']).filter((value) => typeof value === 'number'));
  return meshBudget({ stepMs, stages, delayMs }).map(({ part, ms }) => ({ part, ms: round(ms) }));
}
