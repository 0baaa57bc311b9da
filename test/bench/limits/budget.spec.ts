import assert from 'node:assert/strict';
import { budgetLines, meshBudget, stepBudget, type BudgetPart } from '../../../bench/limits/budget.ts';
import type { MachineLimits } from '../../../bench/limits/machine-limits.ts';

const limits: MachineLimits = {
  threads: 1, features: [], copy_gb_s: 8, f32_gflops: 100, read: [{ mib: 2048, gb_s: 10 }],
};
const work = {
  weightBytes: { Q4_0: 200e6, F32: 10e6 }, kvBytes: 30e6, bytes: 240e6, matrixOps: 0, attentionOps: 0, ops: 0,
};

const sum = (parts: readonly BudgetPart[]): number => parts.reduce((all, { ms }) => all + ms, 0);
const of = (parts: readonly BudgetPart[], name: string): number | undefined =>
  parts.find(({ part }) => part === name)?.ms;

function near(actual: number | undefined, expected: number): void {
  assert.ok(actual !== undefined && Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);
}

describe('bench/limits/budget', () => {
  it('splits a step into parts that add up to it', () => {
    const parts = stepBudget({ stepMs: 41, computeMs: 40, sampleMs: 0.25, work, limits });
    near(sum(parts), 41);
    near(of(parts, 'reading weights, Q4_0'), 20);
    near(of(parts, 'reading weights, F32'), 1);
    near(of(parts, 'reading keys and values'), 3);
    near(of(parts, 'computing beyond reading'), 16);
    near(of(parts, 'sampling'), 0.25);
    near(of(parts, 'unexplained'), 0.75);
  });

  it('leaves nothing to computing when everything came faster than memory gives it', () => {
    const parts = stepBudget({ stepMs: 13, computeMs: 12, sampleMs: 0.5, work, limits });
    near(sum(parts), 13);
    near(of(parts, 'reading weights, Q4_0'), 10);
    near(of(parts, 'computing beyond reading'), 0);
  });

  it('claims no more than reading for a system that tells nothing', () => {
    const parts = stepBudget({ stepMs: 50, work, limits });
    near(sum(parts), 50);
    near(of(parts, 'everything beyond reading'), 26);
    assert.equal(of(parts, 'unexplained'), undefined);
  });

  it('takes the stages of a mesh from their own clocks, and leaves the rest to the seams', () => {
    const stage = { queueMs: 0.1, computeMs: 15, handOverMs: 0.2 };
    const parts = meshBudget({ stepMs: 72, stages: [stage, { ...stage, computeMs: 16 }], delayMs: 20 });
    near(sum(parts), 72);
    near(of(parts, 'computing, stage 1'), 16);
    near(of(parts, 'delays, 2 of 20 ms'), 40);
    near(of(parts, 'seams and unexplained'), 72 - 31 - 0.2 - 0.4 - 40);
  });

  it('knows no way between the stages of a mesh of one', () => {
    const parts = meshBudget({ stepMs: 20, stages: [{ queueMs: 0, computeMs: 19, handOverMs: 0 }], delayMs: 20 });
    near(of(parts, 'seams and unexplained'), 1);
  });

  it('prints each part with its share', () => {
    assert.deepEqual(budgetLines([{ part: 'sampling', ms: 1 }, { part: 'unexplained', ms: 3 }]), [
      'sampling                              1.00 ms   25 %',
      'unexplained                           3.00 ms   75 %',
    ]);
  });
});
