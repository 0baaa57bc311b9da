import assert from 'node:assert/strict';
import { budgetMeasures, tokenBudget } from '../../../bench/mesh/token-budget.ts';

function round(stepMs: number, computeMs: readonly number[]) {
  const stages = computeMs.map((ms) => ({ queueMs: 0.5, computeMs: ms, handOverMs: 0.25 }));
  return { order: ['ours'], probe: 1, pressure: { load: 0 }, wallMs: 1, runs: { ours: { ...budgetMeasures(stepMs, stages) } } };
}

describe('bench/mesh/token-budget', () => {
  it('takes the median of each part, and what is left of the median token as the last one', () => {
    const rounds = [round(80, [15, 17]), round(90, [30, 16]), round(78, [14, 18])];
    const budget = tokenBudget({ rounds }, { system: 'ours', delayMs: 20 });
    assert.deepEqual(Object.fromEntries(budget.map(({ part, ms }) => [part, ms])), {
      'computing, stage 0': 15, 'computing, stage 1': 17, 'waiting for a turn': 1, 'sampling and frames': 0.5,
      'delays, 2 of 20 ms': 40, 'seams and unexplained': 6.5,
    });
    assert.equal(budget.reduce((sum, { ms }) => sum + ms, 0), 80);
  });
});
