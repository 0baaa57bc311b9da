import assert from 'node:assert/strict';
import { THRESHOLDS } from '../../../bench/contract.ts';
import { compare } from '../../../bench/judging/compare.ts';
import type { Figure } from '../../../bench/runner/lane-record.ts';
import { flatRatios, type BenchRecord } from '../../../bench/runner/record.ts';
import { aLane, aRecord } from '../runner/some-record.ts';

function record(ratios: Readonly<Record<string, Figure>>, contended = false): BenchRecord {
  const lanes = [aLane({ ratios, contended })];
  return aRecord({ lanes, ratios: flatRatios(lanes) });
}

const verdicts = (old: BenchRecord, now: BenchRecord): Record<string, string> =>
  Object.fromEntries(compare(old, now).changes.map(({ name, verdict }) => [name.replace('1b/', ''), verdict]));

describe('bench/judging/compare', () => {
  it('fails a ratio whose interval lies wholly below 0.97 of the recorded one', () => {
    const old = record({ 'decode/a_over_b': 1 });
    const now = (high: number) => record({ 'decode/a_over_b': { median: 0.95, low: 0.94, high, n: 5 } });
    assert.deepEqual(verdicts(old, now(0.969)), { 'decode/a_over_b': 'fails' });
    assert.deepEqual(verdicts(old, now(0.97)), { 'decode/a_over_b': 'holds' });
  });

  it('fails a cost whose interval lies wholly above', () => {
    const old = record({ 'memory/a_over_b': 1, seam_2k_added_ms: 1 });
    const now = (low: number) => record({ 'memory/a_over_b': { median: 1.1, low, high: 1.2, n: 5 }, seam_2k_added_ms: 0.5 });
    assert.deepEqual(verdicts(old, now(1.04)), { 'memory/a_over_b': 'fails', seam_2k_added_ms: 'holds' });
    assert.deepEqual(verdicts(old, now(1.03)), { 'memory/a_over_b': 'holds', seam_2k_added_ms: 'holds' });
  });

  it('takes what a link carries, and a process that survives where it should not, for a cost', () => {
    const key = { question: 'wire', model: '1b' };
    const of = (figure: number): BenchRecord => {
      const lanes = [aLane({ key, ratios: { 'wire/a_over_b': figure } }), aLane({ ratios: { 'fit/one_process_finished': figure } })];
      return aRecord({ lanes, ratios: flatRatios(lanes) });
    };
    assert.deepEqual(Object.values(verdicts(of(0.5), of(1))), ['fails', 'fails']);
    assert.deepEqual(Object.values(verdicts(of(1), of(0.5))), ['holds', 'holds']);
  });

  it('takes times over what is allowed and what is left behind for a cost, and speeds and fairness of many sessions for none', () => {
    const costs = [
      'delay_law_20ms', 'decoders_p95_over_undisturbed_0ms', 'long_first_token_over_alone_20ms', 'stall_rss_growth_mib',
      'disconnect_queued_ms', 'overload_untyped', 'overload_rss_back_mib', 'overload_fds_back', 'overload_left',
    ];
    const gains = ['mesh8_over_one8_0ms', 'jain_mesh8_0ms', 'stall_others_speed', 'overload_admitted_speed'];
    const of = (figure: number): BenchRecord => {
      const ratios = Object.fromEntries([...costs, ...gains].map((name) => [name, figure]));
      return aRecord({ lanes: [aLane({ ratios })], ratios });
    };
    assert.deepEqual(Object.values(verdicts(of(0.5), of(1))), [
      ...costs.map(() => 'fails'), ...gains.map(() => 'holds'),
    ]);
    assert.deepEqual(Object.values(verdicts(of(1), of(0.5))), [
      ...costs.map(() => 'holds'), ...gains.map(() => 'fails'),
    ]);
  });

  it('agrees with the contract which way is better', () => {
    const bounds = THRESHOLDS.flatMap(({ bounds = [] }) => bounds);
    const of = (figure: number): BenchRecord => {
      const ratios = Object.fromEntries(bounds.map(({ figure: name }) => [name, figure]));
      return aRecord({ lanes: [aLane({ ratios })], ratios });
    };
    const costs = new Set(bounds.filter(({ atMost }) => atMost !== undefined).map(({ figure }) => figure));
    const worse = compare(of(0.5), of(1)).changes.filter(({ verdict }) => verdict === 'fails').map(({ name }) => name);
    assert.deepEqual(worse.toSorted(), [...costs].toSorted());
  });

  it('judges no ratio of a lane that was disturbed, then or now, and none of a smoke run', () => {
    const [good, slow] = [record({ 'decode/a_over_b': 1 }), record({ 'decode/a_over_b': 0.1 })];
    assert.deepEqual(verdicts(record({ 'decode/a_over_b': 1 }, true), slow), { 'decode/a_over_b': 'not judged' });
    assert.deepEqual(verdicts(good, record({ 'decode/a_over_b': 0.1 }, true)), { 'decode/a_over_b': 'not judged' });
    assert.deepEqual(verdicts(good, { ...slow, context: { ...slow.context, smoke: true } }), { 'decode/a_over_b': 'not judged' });
  });

  it('holds a cost below zero against itself', () => {
    const of = (fds: number, untyped: number): BenchRecord => {
      const ratios = { overload_fds_back: fds, overload_untyped: untyped };
      return aRecord({ lanes: [aLane({ ratios })], ratios });
    };
    assert.deepEqual(Object.values(verdicts(of(-1, 0), of(-1, 0))), ['holds', 'holds']);
    assert.deepEqual(Object.values(verdicts(of(-1, 0), of(-0.9, 1))), ['fails', 'fails']);
  });

  it('holds only when something was compared', () => {
    const old = record({ 'decode/a_over_b': 1 });
    const none = compare(old, record({ 'decode/c_over_b': 1 }));
    assert.deepEqual([none.holds, none.changes], [false, []]);
    assert.match(none.lines.join('\n'), /nothing to compare/);
    assert.equal(compare(old, old).holds, true);
    assert.equal(compare(old, record({ 'decode/a_over_b': 0.9 })).holds, false);
  });

  it('warns of another machine and another engine, and tells what was not measured', () => {
    const old = record({ 'decode/a_over_b': 1, 'decode/c_over_b': 1 });
    const now = record({ 'decode/a_over_b': 1 });
    const other = { ...now, context: { ...now.context, engine: 'another one', machine: { ...now.context.machine, kernel: '2' } } };
    const text = compare(old, other).lines.join('\n');
    assert.match(text, /another kernel \(1, now 2\)/);
    assert.match(text, /another engine \(an engine, now another one\)/);
    assert.match(text, /not measured now: 1b\/decode\/c_over_b/);
    assert.doesNotMatch(compare(old, now).lines.join('\n'), /warning/);
  });
});
