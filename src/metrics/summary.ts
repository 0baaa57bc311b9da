import type { Outcome } from '../gateway/observer.ts';
import type { Part } from './catalogue.ts';

/** What a node did since its start, for people. Times in ms. */
export interface ActivitySummary {
  /** Those that have ended by how, those that wait for a route, and those that have one. */
  readonly requests: Readonly<Record<Outcome | 'waiting' | 'open', number>>;
  /** Undefined before there was one. */
  readonly firstToken?: Quantiles;
  readonly perToken?: Quantiles;
  /** Where the time per token went, all stages together: the mean. */
  readonly seam?: Readonly<Record<Part, number>>;
  /** By reason, at the gateway and at admission together. */
  readonly refusals: Readonly<Record<string, number>>;
}

export interface Quantiles {
  readonly p50: number;
  readonly p95: number;
}

/** A value of a metric as the library gives it. */
export interface Sample {
  readonly labels: Readonly<Partial<Record<string, string | number>>>;
  readonly value: number;
  /** Of a histogram: `_bucket`, `_sum` or `_count` behind its name. */
  readonly metricName?: string;
}

/** Sums by the value of one label. */
export function sumBy(label: string, samples: readonly Sample[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const { labels, value } of samples) {
    const key = String(labels[label]);
    sums[key] = (sums[key] ?? 0) + value;
  }
  return sums;
}

export function quantilesMs(samples: readonly Sample[]): Quantiles | undefined {
  const [p50, p95] = [quantile(0.5, samples), quantile(0.95, samples)];
  return p50 === undefined || p95 === undefined ? undefined : { p50: p50 * 1000, p95: p95 * 1000 };
}

/**
 * Of a histogram without labels, as Prometheus estimates it: evenly spread inside a bucket, the last finite bound for
 * what lies beyond it. Undefined when it is empty.
 */
export function quantile(share: number, samples: readonly Sample[]): number | undefined {
  const buckets = named('_bucket', samples)
    .map(({ labels: { le }, value }) => ({ bound: le === '+Inf' ? Infinity : Number(le), count: value }))
    .sort((a, b) => a.bound - b.bound);
  const rank = share * (buckets.at(-1)?.count ?? 0);
  const at = buckets.findIndex(({ count }) => count >= rank);
  const bucket = buckets[at];
  if (bucket === undefined || rank === 0) {
    return undefined;
  }
  const below = buckets[at - 1] ?? { bound: 0, count: 0 };
  return bucket.bound === Infinity
    ? below.bound
    : below.bound + (bucket.bound - below.bound) * (rank - below.count) / (bucket.count - below.count);
}

/** Means by part; every step has one share of the network. */
export function seamMs(samples: readonly Sample[]): Readonly<Record<Part, number>> | undefined {
  const steps = sumBy('part', named('_count', samples))['network'] ?? 0;
  if (steps === 0) {
    return undefined;
  }
  const seconds = sumBy('part', named('_sum', samples));
  const mean = (part: Part): number => (seconds[part] ?? 0) * 1000 / steps;
  return { queue: mean('queue'), compute: mean('compute'), handover: mean('handover'), network: mean('network') };
}

function named(ending: string, samples: readonly Sample[]): Sample[] {
  return samples.filter(({ metricName }) => metricName?.endsWith(ending) === true);
}
