import type { LaneRecord } from '../../../bench/runner/lane-record.ts';
import type { BenchRecord } from '../../../bench/runner/record.ts';

/** A lane that was measured undisturbed, with what a test wants otherwise. */
export function aLane(more: Partial<LaneRecord> = {}): LaneRecord {
  return { key: { model: '1b' }, systems: ['a', 'b'], long: false, contended: false, rounds: [], discarded: [], ratios: {}, ...more };
}

export function aRecord(more: Partial<BenchRecord> = {}): BenchRecord {
  return {
    at: '2026-01-02T03:04:05.678Z', commit: 'abc', bench: 'split', ratios: {}, lanes: [], details: {},
    context: {
      machine: { cpu: 'a processor', cores: 2, kernel: '1', node: 'v24', congestion: 'cubic', memoryGiB: 8 },
      engine: 'an engine', threads: 1, model: '1b',
    },
    ...more,
  };
}
