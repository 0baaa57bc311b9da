import type { SpeedLane, SystemName } from '../../../bench/gate5/lanes.ts';
import type { Measures, Rounds } from '../../../bench/runner/rounds.ts';

const MEASURES: Measures = {
  decode: 10, prefill: 100, step_p50_ms: 100, paused_step_p50_ms: 100, memory_over_bound: 0.5,
  line_bytes: 9000, seam_bytes: 8300, seam_messages_per_microbatch: 1, logits_bytes: 0, n_embd: 2048,
};

/** One round of a lane in which every system measures the same. */
export function someRounds({ systems }: SpeedLane): Rounds<SystemName> {
  return {
    good: [{
      order: systems, probe: 1, pressure: { load: 0, cpuAvg10: 0 }, wallMs: 1000,
      runs: Object.fromEntries(systems.map((name) => [name, MEASURES])) as Record<SystemName, Measures>,
    }],
    discarded: [], contended: false, long: false,
  };
}
