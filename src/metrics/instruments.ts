import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { CATALOGUE, type MetricName, type MetricSpec } from './catalogue.ts';

export interface Labelled {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The metrics of the catalogue, made by their names in a registry of their own. */
export class Instruments {
  readonly #registry = new Registry();

  get contentType(): string {
    return this.#registry.contentType;
  }

  async text(): Promise<string> {
    return await this.#registry.metrics();
  }

  counter(name: MetricName<'counter'>): Counter {
    return new Counter(this.#configOf(name));
  }

  gauge(name: MetricName<'gauge'>): Gauge {
    return new Gauge(this.#configOf(name));
  }

  histogram(name: MetricName<'histogram'>): Histogram {
    return new Histogram({ ...this.#configOf(name), buckets: [...CATALOGUE[name].buckets] });
  }

  #configOf(name: MetricName): { name: string; help: string; labelNames: string[]; registers: Registry[] } {
    const { help, labels = {} }: MetricSpec = CATALOGUE[name];
    return { name, help, labelNames: Object.keys(labels), registers: [this.#registry] };
  }
}

/** For what somebody else counts: a worker that starts anew counts from 0, which Prometheus takes for what it is. */
export function setCounter(counter: Counter, counts: readonly Labelled[]): void {
  counter.reset();
  for (const { labels, value } of counts) {
    counter.inc(labels, value);
  }
}
