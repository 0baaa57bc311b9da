import { laneKey, loadsOf, type GridLane, type SystemName } from '../../../bench/concurrency/lanes.ts';
import type { LaneRecord } from '../../../bench/runner/lane-record.ts';
import type { Measures, Round, Rounds } from '../../../bench/runner/rounds.ts';

const MESH: Measures = {
  decode: 90, step_p50_ms: 80, step_p95_ms: 120, step_mean_ms: 77, stage_compute_ms: [16, 16], jain: 0.99, together: 0.9,
};

/** One round that counts. */
export function roundsOf<S extends string>(runs: Readonly<Record<S, Measures>>): Rounds<S> {
  const round: Round<S> = { order: Object.keys(runs) as S[], probe: 1, pressure: { load: 0, cpuAvg10: 0 }, wallMs: 1000, runs };
  return { good: [round], discarded: [], contended: false, long: false };
}

/** What the systems of a lane measured, the mesh 1.5 times as fast as one process. */
export function someRounds(lane: GridLane, mesh: Measures = {}): Rounds<SystemName> {
  const all: Record<SystemName, Measures> = { one8: { decode: 60 }, stock8: { decode: 62.5 }, mesh: { ...MESH, ...mesh } };
  const runs = Object.fromEntries([...loadsOf(lane).keys()].map((name) => [name, all[name]]));
  return roundsOf(runs as Record<SystemName, Measures>);
}

/** Its record, with what theory allows. */
export function someRecord(lane: GridLane, more: Partial<LaneRecord> = {}): LaneRecord {
  const { good } = someRounds(lane);
  return {
    key: laneKey(lane), systems: [...loadsOf(lane).keys()], long: false, contended: false, rounds: good, discarded: [], ratios: {},
    limits: { ring: { group: 4, tokS: 100, tokenMs: 70 } }, ...more,
  };
}
