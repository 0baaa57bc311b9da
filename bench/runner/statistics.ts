/** Medians of paired ratios, with a bootstrap interval. Seeded, so that a record gives the same interval again. */

export function median(values: readonly number[]): number {
  if (values.length === 0) {
    return Number.NaN;
  }
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[middle] as number : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

/** 95 % interval of the median by resampling. */
export function medianInterval(values: readonly number[], rounds = 2000): [low: number, high: number] {
  let state = 0x2545f491;
  const random = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  const medians = Array.from({ length: rounds }, () =>
    median(values.map(() => values[Math.floor(random() * values.length)] as number)));
  return [quantile(medians, 0.025), quantile(medians, 0.975)];
}

/** Rounded to `digits` significant ones, for records and tables. */
export function round(value: number, digits = 4): number {
  return Number(value.toPrecision(digits));
}
