/** Prometheus' text format, read as strictly as its own reader does. */
export interface ExposedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const HISTOGRAM_ENDINGS = ['_bucket', '_sum', '_count'];

export class Exposition {
  /** Name to HELP and TYPE, in their order. */
  readonly families = new Map<string, { help: string; type: string }>();
  readonly samples: ExposedSample[] = [];

  constructor(text: string) {
    if (!text.endsWith('\n')) {
      throw new Error('the last line does not end');
    }
    for (const line of text.split('\n').filter((line) => line !== '')) {
      this.#read(line);
    }
  }

  /** 0 when there is no such sample, as a rate would take it. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    const isIt = (sample: ExposedSample): boolean => sample.name === name &&
      Object.keys(sample.labels).length === Object.keys(labels).length &&
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value);
    const found = this.samples.filter(isIt);
    if (found.length > 1) {
      throw new Error(`${name} ${JSON.stringify(labels)} stands twice`);
    }
    return found[0]?.value ?? 0;
  }

  /** Of all samples with this name, whatever their labels. */
  sum(name: string): number {
    return this.samples.filter((sample) => sample.name === name).reduce((sum, { value }) => sum + value, 0);
  }

  /** The metric that a sample belongs to. */
  familyOf({ name }: ExposedSample): string {
    const ending = HISTOGRAM_ENDINGS.find((each) => name.endsWith(each));
    const family = ending === undefined ? name : name.slice(0, -ending.length);
    return this.families.get(family)?.type === 'histogram' ? family : name;
  }

  #read(line: string): void {
    const help = /^# HELP (?<name>\w+) (?<help>.+)$/.exec(line)?.groups;
    const type = /^# TYPE (?<name>\w+) (?<type>counter|gauge|histogram)$/.exec(line)?.groups;
    const sample = /^(?<name>[a-z_]+)(?:\{(?<labels>.*)\})? (?<value>\S+)$/.exec(line)?.groups;
    if (help !== undefined) {
      this.families.set(help['name'] ?? '', { help: help['help'] ?? '', type: '' });
    } else if (type !== undefined) {
      const family = this.families.get(type['name'] ?? '');
      if (family === undefined || family.type !== '') {
        throw new Error(`a type without its help: ${line}`);
      }
      family.type = type['type'] ?? '';
    } else if (sample !== undefined) {
      this.samples.push({ name: sample['name'] ?? '', labels: labelsIn(sample['labels'] ?? ''), value: valueOf(sample['value']) });
    } else {
      throw new Error(`no line of an exposition: ${line}`);
    }
  }
}

function labelsIn(text: string): Record<string, string> {
  const pairs = [...text.matchAll(/([a-z_]+)="([^"\\]*)"(?:,|$)/g)];
  if (pairs.map(([pair]) => pair).join('') !== text) {
    throw new Error(`no labels: ${text}`);
  }
  return Object.fromEntries(pairs.map(([, label = '', value = '']) => [label, value]));
}

function valueOf(text: string | undefined): number {
  const value = Number(text);
  if (!Number.isFinite(value)) {
    throw new Error(`no number: ${text}`);
  }
  return value;
}
