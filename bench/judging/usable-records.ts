import { laneName } from '../runner/lane-record.ts';
import { flatRatios, isSmoke, type BenchRecord } from '../runner/record.ts';
import { differences } from './differences.ts';

/** Without smoke runs, and of each benchmark only those on the machine and engine of its newest record: others say nothing of it. */
export function usable(given: readonly BenchRecord[]): BenchRecord[] {
  const records = given.filter((record) => !isSmoke(record));
  return records.filter((record) => {
    const newest = records.findLast(({ bench }) => bench === record.bench) ?? record;
    return differences(record, newest).length === 0;
  });
}

/**
 * Of each benchmark one record: every lane from the newest run in which it was undisturbed. It names the
 * checkouts of all of them; its context and time are the newest's.
 */
export function united(given: readonly BenchRecord[]): BenchRecord[] {
  const records = usable(given);
  return [...new Set(records.map(({ bench }) => bench))].flatMap((name) => {
    const own = records.filter(({ bench }) => bench === name);
    const all = own.flatMap(({ commit, lanes }) => lanes.map((lane) => ({ commit, lane, name: laneName(lane.key) })));
    const taken = [...new Set(all.map((one) => one.name))].flatMap((lane) => {
      const same = all.filter((one) => one.name === lane);
      return same.findLast((one) => !one.lane.contended) ?? same.at(-1) ?? [];
    });
    const lanes = taken.map(({ lane }) => lane);
    const commit = [...new Set(taken.map((one) => one.commit))].join(', ');
    const newest = own.at(-1);
    return newest === undefined ? [] : [{ ...newest, commit, lanes, ratios: flatRatios(lanes) }];
  });
}
