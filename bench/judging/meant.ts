import { laneName } from '../runner/lane-record.ts';
import { flatRatios, type BenchRecord } from '../runner/record.ts';

/** Without smoke runs, and of each benchmark only what the newest record's engine and processor gave: another's says nothing of it. */
export function meant(given: readonly BenchRecord[]): BenchRecord[] {
  const records = given.filter(({ context }) => context['smoke'] !== true);
  return records.filter((record) => {
    const newest = records.findLast(({ bench }) => bench === record.bench) ?? record;
    return record.context.engine === newest.context.engine && record.context.machine.cpu === newest.context.machine.cpu;
  });
}

/** Of each benchmark one record, as if its runs had been one: every lane from the newest in which it was undisturbed. */
export function united(given: readonly BenchRecord[]): BenchRecord[] {
  const records = meant(given);
  return [...new Set(records.map(({ bench }) => bench))].flatMap((name) => {
    const own = records.filter(({ bench }) => bench === name);
    const all = own.flatMap(({ lanes }) => lanes);
    const lanes = [...new Set(all.map(({ key }) => laneName(key)))].flatMap((lane) => {
      const same = all.filter(({ key }) => laneName(key) === lane);
      return (same.findLast(({ contended }) => !contended) ?? same.at(-1)) ?? [];
    });
    const newest = own.at(-1);
    return newest === undefined ? [] : [{ ...newest, lanes, ratios: flatRatios(lanes) }];
  });
}
