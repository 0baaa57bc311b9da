import assert from 'node:assert/strict';
import type { Figure } from '../../../bench/runner/lane-record.ts';
import { readRecords, type BenchRecord } from '../../../bench/runner/record.ts';
import { decisionOf, holds, judge, type Verdict } from '../../../bench/judging/verdict.ts';
import { aLane, aRecord } from '../runner/some-record.ts';

const of = (verdicts: readonly Verdict[], id: string): Verdict => verdicts.find((one) => one.id === id) as Verdict;

/** A record of split as the contract has it. */
function split(decode: Figure, more: { at?: string; contended?: boolean; smoke?: boolean } = {}): BenchRecord {
  const { at = '2026-01-01T00:00:00.000Z', contended = false, smoke = false } = more;
  const record = aRecord({ at });
  return {
    ...record, context: { ...record.context, smoke },
    lanes: [aLane({ key: { model: '1.1B shape, q4_0' }, contended, ratios: { decode_mesh_over_one_process: decode } })],
  };
}

/** Gate 5 at these delays, with a figure each. */
function gate5(figure: string, values: Readonly<Record<number, number>>, contended: readonly number[] = []): BenchRecord {
  return aRecord({
    bench: 'gate5',
    lanes: Object.entries(values).map(([delay, value]) => aLane({
      key: { model: '1b', prompt: 32, sessions: 1, delay: Number(delay) }, contended: contended.includes(Number(delay)),
      ratios: { [figure]: value },
    })),
  });
}

describe('bench/judging/verdict', () => {
  it('judges the committed results of seam and split', () => {
    const first = Object.entries({ seam: 2, split: 1 })
      .flatMap(([name, count]) => readRecords(`bench/results/${name}.jsonl`).slice(0, count));
    const verdicts = judge(first);
    for (const id of ['S.decode', 'S.prefill', 'S.stock', 'S.seam', 'P.direct']) {
      assert.equal(of(verdicts, id).verdict, 'holds', id);
    }
    assert.match(of(verdicts, 'S.decode').value, /^0\.907289 \[/);
  });

  it('judges nothing without a record, and leaves to tests what they hold', () => {
    const verdicts = judge([]);
    assert.deepEqual(new Set(verdicts.map(({ verdict }) => verdict)), new Set(['not judged']));
    assert.match(of(verdicts, 'R2.rpc1l').why, /no record of gate5/);
    assert.match(of(verdicts, 'S.exact').why, /held by test\/native/);
  });

  it('holds at the bound itself and fails below it', () => {
    assert.equal(of(judge([split(0.9)]), 'S.decode').verdict, 'holds');
    assert.equal(of(judge([split({ median: 0.8999, low: 0.8, high: 1, n: 5 })]), 'S.decode').verdict, 'fails');
  });

  it('takes the newest undisturbed record, and judges by no disturbed one', () => {
    const old = split(0.95);
    const disturbed = split(0.5, { at: '2026-01-02T00:00:00.000Z', contended: true });
    assert.equal(of(judge([old, disturbed]), 'S.decode').verdict, 'holds');
    assert.equal(of(judge([old, split(0.5)]), 'S.decode').verdict, 'fails');
    const alone = of(judge([disturbed]), 'S.decode');
    assert.deepEqual([alone.verdict, alone.value], ['not judged', '0.5']);
    assert.match(alone.why, /contended/);
  });

  it('judges by no record of another engine or processor than the newest one', () => {
    const old = split(0.95);
    const now = split(0.95, { at: '2026-01-02T00:00:00.000Z', contended: true });
    const { context } = now;
    assert.equal(of(judge([old, now]), 'S.decode').verdict, 'holds');
    const rebuilt = { ...now, context: { ...context, engine: 'another engine' } };
    assert.equal(of(judge([old, rebuilt]), 'S.decode').verdict, 'not judged');
    const moved = { ...now, context: { ...context, machine: { ...context.machine, cpu: 'another processor' } } };
    assert.equal(of(judge([old, moved]), 'S.decode').verdict, 'not judged');
  });

  it('leaves out a smoke run', () => {
    assert.equal(of(judge([split(0.1, { smoke: true })]), 'S.decode').verdict, 'not judged');
  });

  it('demands at each delay what the contract demands there', () => {
    const held = { 0: 1.1, 5: 1.25, 20: 1.3, 50: 1.3 };
    assert.equal(of(judge([gate5('decode/ours_over_rpc1l', held)]), 'R2.rpc1l').verdict, 'holds');
    assert.equal(of(judge([gate5('decode/ours_over_rpc1l', { ...held, 5: 1.2 })]), 'R2.rpc1l').verdict, 'fails');
  });

  it('fails by one delay although another one is unknown, and is unknown otherwise', () => {
    const contended = gate5('decode/ours_over_rpc1l', { 0: 1.2, 5: 1.3, 20: 1.4, 50: 1.4 }, [20]);
    const unknown = of(judge([contended]), 'R2.rpc1l');
    assert.equal(unknown.verdict, 'not judged');
    assert.match(unknown.why, /delay 20 decode\/ours_over_rpc1l contended/);
    assert.equal(of(judge([gate5('decode/ours_over_rpc1l', { 0: 1 })]), 'R2.rpc1l').verdict, 'fails');
  });

  it('holds a cost in every lane that has it, and shows the worst one', () => {
    const verdict = of(judge([gate5('memory/ours_over_bound', { 0: 0.7, 5: 1.01, 20: 0.9 })]), 'R7');
    assert.deepEqual([verdict.verdict, verdict.value, verdict.bound], ['fails', '0.7 / 1.01 / 0.9 / –', '≤ 1']);
  });

  it('shows the worst of several lanes', () => {
    const lane = (sessions: number, memory: number) => aLane({ key: { model: '1b', delay: 0, sessions }, ratios: { 'memory/ours_over_bound': memory } });
    assert.match(of(judge([aRecord({ bench: 'gate5', lanes: [lane(1, 0.7), lane(8, 0.9), lane(32, 0.8)] })]), 'R7').value, /^0\.9 /);
  });

  it('lets a run of some lanes hide no other lane, and asks for all that the contract names', () => {
    const held = { 0: 0.8, 5: 0.8, 20: 0.8, 50: 0.8 };
    assert.equal(of(judge([gate5('memory/ours_over_bound', held)]), 'R7').verdict, 'holds');
    const part = gate5('memory/ours_over_bound', { 50: 0.8 });
    assert.equal(of(judge([part]), 'R7').verdict, 'not judged');
    assert.equal(of(judge([gate5('memory/ours_over_bound', { ...held, 5: 1.2 }), part]), 'R7').verdict, 'fails');
    assert.equal(of(judge([gate5('memory/ours_over_bound', { ...held, 50: 1.2 }), part]), 'R7').verdict, 'holds');
  });

  it('decides gate 1 by the newest undisturbed lane of each question', () => {
    assert.equal(decisionOf([]), undefined);
    assert.equal(decisionOf([{ ...split(1, { smoke: true }), bench: 'gate1' }]), undefined);
    const key = (context: number, sessions: number) => ({ model: '1b', context, sessions, sampling: 'greedy' });
    const lane = (context: number, sessions: number, decode: number, contended = false) => aLane({
      key: key(context, sessions), contended,
      ratios: Object.fromEntries(['q8_0', 'q4_0'].flatMap((format) => Object.entries({ decode, prefill: 1, memory: 0.6 })
        .map(([measure, value]) => [`${measure}/${format}_over_transformers`, value]))),
    });
    const quality = [
      aLane({ key: { model: 'smollm2', question: 'agreement' }, ratios: { 'kl/f16': 1e-6, 'kl/q8_0': 1e-3 } }),
      aLane({ key: { model: 'smollm2', question: 'reference' }, ratios: { 'kl/f32': 1e-7, 'difference/f32': 1e-3 } }),
    ];
    const all = (decode: number): BenchRecord => {
      const speed = [128, 2048].flatMap((context) => [1, 4].map((sessions) => lane(context, sessions, decode)));
      return aRecord({ bench: 'gate1', lanes: [...quality, ...speed] });
    };
    assert.equal(decisionOf([all(1.6)])?.decision, 'go');
    const disturbed = aRecord({ bench: 'gate1', lanes: [lane(128, 1, 0.1, true)] });
    assert.equal(decisionOf([all(1.6), disturbed])?.decision, 'go');
    const verdicts = judge([all(1.6)]);
    assert.ok(holds(verdicts, decisionOf([all(1.6)])), 'speed is enough');
    assert.ok(!holds(judge([all(1.4)]), decisionOf([all(1.4)])));
    assert.deepEqual(['G1.speed', 'G1.fit', 'G1.reference'].map((id) => of(verdicts, id).verdict), ['holds', 'fails', 'holds']);
  });
});
