import assert from 'node:assert/strict';
import { decide, DECIDING, type Gate1Thresholds, type JudgedLane } from '../../../bench/judging/gate1-decision.ts';

const BOUNDS: Gate1Thresholds = {
  speed: { decode: 1.5, prefill: 0.8 },
  fit: { memory: 0.5, decode: 0.8 },
  quality: { f16: 1e-5, q8_0: 5e-3 },
  reference: { kl: 1e-5, difference: 5e-3 },
};

/** Of one format: decode, prefill and memory over Transformers. */
type Figures = readonly [decode: number, prefill: number, memory: number];
const FAST: Figures = [2, 1, 0.9];
const SMALL: Figures = [0.9, 0.5, 0.3];
const POOR: Figures = [0.7, 0.5, 0.3];

function lane(i: number, q8: Figures, q4: Figures, contended = false): JudgedLane {
  const ratios: Record<string, { median: number }> = {};
  for (const [format, [decode, prefill, memory]] of [
    ['q8_0', q8],
    ['q4_0', q4],
  ] as const) {
    ratios[`decode/${format}_over_transformers`] = { median: decode };
    ratios[`prefill/${format}_over_transformers`] = { median: prefill };
    ratios[`memory/${format}_over_transformers`] = { median: memory };
  }
  return { key: DECIDING[i] ?? {}, contended, ratios };
}

function quality({ f16 = 1e-7, q8_0 = 1e-3, kl = 1e-8, difference = 1e-3 } = {}): JudgedLane[] {
  return [
    { key: { model: 'smollm2', question: 'agreement' }, contended: false, ratios: { 'kl/f16': f16, 'kl/q8_0': q8_0 } },
    {
      key: { model: 'smollm2', question: 'reference' },
      contended: false,
      ratios: { 'kl/f32': kl, 'difference/f32': difference },
    },
  ];
}

const four = (q8: Figures, q4: Figures): JudgedLane[] => DECIDING.map((_, i) => lane(i, q8, q4));

describe('bench/judging/gate1-decision', () => {
  it('goes when one format is fast or fits in each lane that decides', () => {
    const { decision, formats } = decide(
      [...quality(), lane(0, FAST, POOR), lane(1, SMALL, POOR), lane(2, FAST, FAST), lane(3, SMALL, FAST)],
      BOUNDS,
    );
    assert.equal(decision, 'go');
    assert.deepEqual(formats, ['q8_0']);
  });

  it('stops when different lanes need different formats', () => {
    const { decision, formats } = decide(
      [...quality(), lane(0, FAST, POOR), lane(1, POOR, FAST), lane(2, FAST, FAST), lane(3, FAST, FAST)],
      BOUNDS,
    );
    assert.equal(decision, 'stop');
    assert.deepEqual(formats, []);
  });

  it('stops when one lane fails for every format', () => {
    const { decision, findings } = decide([...quality(), ...four(FAST, FAST).slice(1), lane(0, POOR, POOR)], BOUNDS);
    assert.equal(decision, 'stop');
    assert.equal(findings.find(({ id }) => id === 'G1.speed q8_0 1b/128/1/greedy')?.answer, 'fails');
  });

  it('does not mix speed of one measure with fit of another', () => {
    // Fast enough to decode, too slow in prefill for speed, too large for fit.
    assert.equal(decide([...quality(), ...four([2, 0.7, 0.9], POOR)], BOUNDS).decision, 'stop');
  });

  it('holds at the thresholds themselves', () => {
    const exact = quality({ f16: 1e-5, q8_0: 5e-3, kl: 1e-5, difference: 5e-3 });
    assert.equal(decide([...exact, ...four([1.5, 0.8, 1], POOR)], BOUNDS).decision, 'go');
    assert.equal(decide([...exact, ...four([0.8, 0, 0.5], POOR)], BOUNDS).decision, 'go');
  });

  for (const [what, worse] of [
    ['f16', { f16: 2e-5 }],
    ['q8_0', { q8_0: 6e-3 }],
    ['the reference in KL', { kl: 2e-5 }],
    ['the reference in a row', { difference: 6e-3 }],
  ] as const) {
    it(`stops when the quality of ${what} is too bad, however fast it is`, () => {
      assert.equal(decide([...quality(worse), ...four(FAST, FAST)], BOUNDS).decision, 'stop');
    });
  }

  it('does not judge when a lane that decides is contended or was left out', () => {
    assert.equal(
      decide([...quality(), lane(0, FAST, FAST, true), ...four(FAST, FAST).slice(1)], BOUNDS).decision,
      'not judged',
    );
    assert.equal(decide([...quality(), ...four(FAST, FAST).slice(1)], BOUNDS).decision, 'not judged');
    assert.equal(decide(four(FAST, FAST), BOUNDS).decision, 'not judged');
  });

  it('stops beside a contended lane when another one fails by itself', () => {
    const lanes = [lane(0, FAST, FAST, true), lane(1, POOR, POOR), ...four(FAST, FAST).slice(2)];
    assert.equal(decide([...quality(), ...lanes], BOUNDS).decision, 'stop');
  });

  it('lets the lanes of the small model and of sampling decide nothing', () => {
    const others = [
      { ...lane(0, POOR, POOR), key: { model: 'smollm2', context: 128, sessions: 1, sampling: 'greedy' } },
      { ...lane(0, POOR, POOR), key: { model: '1b', context: 128, sessions: 1, sampling: 'sampled' } },
    ];
    assert.equal(decide([...others, ...quality(), ...four(FAST, FAST)], BOUNDS).decision, 'go');
  });
});
