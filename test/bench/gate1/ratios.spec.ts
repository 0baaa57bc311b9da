import assert from 'node:assert/strict';
import { measuresOf } from '../../../bench/gate1/measures.ts';
import { ratiosOf } from '../../../bench/gate1/ratios.ts';
import type { SystemName } from '../../../bench/gate1/systems.ts';
import type { Measures, Round, Rounds } from '../../../bench/runner/rounds.ts';

const run = (decode: number, prefill: number, memory: number): Measures => ({ decode, prefill, memory_mib: memory });

function rounds(...all: Record<SystemName, Measures>[]): Rounds<SystemName> {
  const good = all.map((runs): Round<SystemName> => ({
    order: [],
    probe: 1,
    pressure: { load: 0, cpuAvg10: 0 },
    wallMs: 1,
    runs,
  }));
  return { good, discarded: [], contended: false, long: false };
}

describe('bench/gate1/ratios', () => {
  it('divides by the best Transformers system of each measure and round', () => {
    const ratios = ratiosOf(
      rounds(
        // float32 decodes faster in the first round, bfloat16 in the second; bfloat16 is always faster in prefill.
        {
          torch_float32: run(4, 50, 4000),
          torch_bfloat16: run(2, 100, 2000),
          f16: run(4, 50, 2000),
          q8_0: run(8, 80, 1000),
          q4_0: run(12, 100, 500),
        },
        {
          torch_float32: run(2, 50, 4000),
          torch_bfloat16: run(8, 100, 2000),
          f16: run(8, 50, 2000),
          q8_0: run(16, 80, 1000),
          q4_0: run(24, 100, 500),
        },
      ),
    );
    assert.deepEqual(Object.fromEntries(Object.entries(ratios).map(([name, { median, n }]) => [name, [median, n]])), {
      'decode/f16_over_transformers': [1, 2],
      'prefill/f16_over_transformers': [0.5, 2],
      'memory/f16_over_transformers': [1, 2],
      'decode/q8_0_over_transformers': [2, 2],
      'prefill/q8_0_over_transformers': [0.8, 2],
      'memory/q8_0_over_transformers': [0.5, 2],
      'decode/q4_0_over_transformers': [3, 2],
      'prefill/q4_0_over_transformers': [1, 2],
      'memory/q4_0_over_transformers': [0.25, 2],
    });
  });

  it('makes no ratio where a system gave no figure', () => {
    const all = {
      torch_float32: run(4, 50, 4000),
      torch_bfloat16: {},
      f16: run(4, 50, 2000),
      q8_0: run(8, 80, 1000),
      q4_0: run(12, 100, 500),
    };
    assert.throws(() => ratiosOf(rounds(all)), { code: 'INTERNAL' });
  });
});

describe('bench/gate1/measures', () => {
  it('counts speed over all sessions, the first token to the prompt', () => {
    const measures = measuresOf(
      { model: '1b', context: 128, sessions: 4, output: 24 },
      {
        started: { engine: 'some', startMs: 1500, loadMs: 1000, weightBytes: 1 },
        result: {
          prefillMs: 2000,
          decodeWallMs: 4600,
          stepMs: Array.from({ length: 23 }, (_, i) => 100 + i),
          tokens: [],
          memoryMiB: [700],
          cpuS: 6.04,
        },
      },
    );
    assert.deepEqual(measures, {
      decode: 20,
      prefill: 256,
      memory_mib: 700,
      cpu_ms_per_token: 10,
      prefill_ms: 2000,
      decode_ms: 4600,
      step_p10_ms: 102,
      step_p50_ms: 111,
      step_p95_ms: 121,
      start_ms: 1500,
      load_ms: 1000,
    });
  });
});
