import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { CATALOGUE, type LabelSpec, type MetricSpec } from '../../src/metrics/catalogue.ts';
import { metricRows } from '../support/documents.ts';

const metrics: [string, MetricSpec][] = Object.entries(CATALOGUE);
const labels = metrics.flatMap(([name, spec]) => Object.entries(spec.labels ?? {}).map(([label, { values }]) => ({ name, label, values })));

function cellOf(specs: Readonly<Record<string, LabelSpec>> = {}): string {
  const cells = Object.entries(specs).map(([label, { values, said }]) => `\`${label}\`: ${said ?? values.join(', ')}`);
  return cells.length === 0 ? 'none' : cells.join('; ');
}

describe('metrics/catalogue', () => {
  it('has the very table of METRICS.md', () => {
    const rows = metrics.map(([name, { type, help, labels: specs }]) => ({ name, type, labels: cellOf(specs), help }));
    assert.deepEqual(metricRows(readFileSync('METRICS.md', 'utf8')), rows);
  });

  it('names metrics as Prometheus wants them', () => {
    for (const [name, { type }] of metrics) {
      assert.match(name, /^meshnet(_[a-z]+)+$/);
      assert.equal(name.endsWith('_total'), type === 'counter', name);
      assert.doesNotMatch(name, /_(bucket|sum|count|info)$|milli|micro|_(ms|us|kb|mib|minutes)(_|$)/);
      assert.equal(type === 'histogram' && !name.endsWith('_seconds'), false, `${name} has no unit`);
    }
    for (const { label } of labels) {
      assert.match(label, /^[a-z]+$/);
      assert.ok(!['le', 'quantile', 'job', 'instance'].includes(label), label);
    }
  });

  it('has few values for every label, in words that need no escape', () => {
    for (const { name, label, values } of labels) {
      assert.ok(values.length > 1 && values.length <= 100, `${name} ${label}`);
      assert.equal(new Set(values).size, values.length, `${name} ${label}`);
      assert.deepEqual(values.filter((value) => !/^[a-z0-9_]+$/.test(value)), []);
    }
  });

  it('says in one sentence what each metric is, and has growing bounds for each histogram', () => {
    for (const [name, { type, help, buckets }] of metrics) {
      assert.match(help, /^[A-Z][^.|\\\n]*\.$/, name);
      assert.equal(buckets !== undefined, type === 'histogram', name);
      assert.deepEqual(buckets, buckets?.toSorted((a, b) => a - b));
    }
  });
});
