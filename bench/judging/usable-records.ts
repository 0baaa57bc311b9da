import { laneName, type LaneRecord } from '../runner/lane-record.ts';
import { flatRatios, isSmoke, type BenchRecord } from '../runner/record.ts';
import { differences } from './differences.ts';

/**
 * Without smoke runs and runs that measured nothing, and of each benchmark only those on the machine and engine of its newest
 * record: others say nothing of it.
 */
export function usable(given: readonly BenchRecord[]): BenchRecord[] {
  const records = given.filter((record) => !isSmoke(record) && record.lanes.length > 0);
  return records.filter((record) => {
    const newest = records.findLast(({ bench }) => bench === record.bench) ?? record;
    return differences(record, newest).length === 0;
  });
}

/** A lane, and the run that it is of. */
export interface Taken {
  readonly lane: LaneRecord;
  readonly record: BenchRecord;
}

/** Every lane once: from the newest run (oldest are first) in which it was undisturbed, or from the newest at all. */
export function newestLanes(records: readonly BenchRecord[], isAsked: (lane: LaneRecord) => boolean = () => true): Taken[] {
  const all = records.flatMap((record) => record.lanes.filter(isAsked).map((lane) => ({ lane, record })));
  return [...new Set(all.map(({ lane }) => laneName(lane.key)))].flatMap((name) => {
    const same = all.filter(({ lane }) => laneName(lane.key) === name);
    return same.findLast(({ lane }) => !lane.contended) ?? same.at(-1) ?? [];
  });
}

/** Of each benchmark one record, with every lane. It names the checkouts of all of them; its context and time are the newest's. */
export function united(given: readonly BenchRecord[]): BenchRecord[] {
  const records = usable(given);
  return [...new Set(records.map(({ bench }) => bench))].flatMap((name) => {
    const own = records.filter(({ bench }) => bench === name);
    const taken = newestLanes(own);
    const lanes = taken.map(({ lane }) => lane);
    const commit = [...new Set(taken.map(({ record }) => record.commit))].join(', ');
    const newest = own.at(-1);
    return newest === undefined ? [] : [{ ...newest, commit, lanes, ratios: flatRatios(lanes) }];
  });
}
