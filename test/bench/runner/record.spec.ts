import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { laneName, valueOf } from '../../../bench/runner/lane-record.ts';
import { appendRecord, assertAppendable, flatRatios, parseRecord, readRecords, recordOf } from '../../../bench/runner/record.ts';
import { aLane, aRecord } from './some-record.ts';

describe('bench/runner/record', () => {
  it('reads every committed result', () => {
    const files = globSync('bench/results/**/*.jsonl');
    assert.ok(files.length >= 2);
    for (const file of files) {
      for (const record of readRecords(file)) {
        assert.ok(file.includes(record.bench), `${file} has a record of ${record.bench}`);
        assert.ok(record.lanes.length > 0, file);
        for (const figure of Object.values(record.ratios)) {
          assert.ok(Number.isFinite(valueOf(figure)), file);
        }
      }
    }
  });

  it('reads back what it wrote', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'meshnet-record-'));
    try {
      const file = join(dir, 'records.jsonl');
      const ratios = { 'decode/a_over_b': { median: 1, low: 0.9, high: 1.1, n: 5 }, 'kl/a': 0.1 };
      const record = recordOf(aRecord({ lanes: [aLane({ ratios })] }));
      appendRecord(file, record);
      appendRecord(file, record);
      assert.deepEqual(readRecords(file), [record, record]);
      assert.equal(readFileSync(file, 'utf8').trimEnd().split('\n').length, 2);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('reads the first records of split as lanes of their own, each with its own state', () => {
    const [record] = readRecords('bench/results/split.jsonl');
    const lanes = record?.lanes.map(({ key, contended, rounds, discarded }) =>
      [laneName(key), contended, rounds.length, discarded.length]);
    assert.deepEqual(lanes, [
      ['1.1B shape, q4_0/384/64/1', false, 6, 1],
      ['smollm2-135m-instruct, q4_1/384/64/1', true, 7, 0],
    ]);
    assert.deepEqual(Object.keys(record?.lanes[1]?.ratios ?? {}).every((name) => name.startsWith('smollm2_')), true);
    assert.equal(record?.lanes[0]?.rounds[1]?.order.join(', '), 'stock, one, mesh');
  });

  it('makes the figures of the first records of seam by the contract: medians over rounds', () => {
    const [, record] = readRecords('bench/results/seam.jsonl');
    // p50 above TCP in its five rounds: 129.6, 123.6, 119.6, 128.3, 129.8 µs.
    assert.equal(valueOf(record?.ratios['seam_2k_added_ms'] ?? 0).toFixed(4), '0.1283');
  });

  it('tells where a broken line stands, and which file cannot be read', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'meshnet-record-'));
    try {
      const file = join(dir, 'records.jsonl');
      assert.throws(() => readRecords(file), { code: 'CONFIG_INVALID', details: { file } });
      await writeFile(file, `${JSON.stringify(aRecord())}\n\n{"bench":`);
      assert.throws(() => readRecords(file), { code: 'MALFORMED', details: { file, line: 3 } });
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  it('tells before a run that a record cannot be written, and writes none in part', () => {
    assert.throws(() => { assertAppendable('/proc/no-such-folder/records.jsonl'); }, { code: 'CONFIG_INVALID' });
    assert.throws(() => { appendRecord('/dev/full', aRecord()); }, { code: 'ENOSPC' });
  });

  it('refuses what is no record', () => {
    const record = aRecord();
    const wrong = [{ ...record, lanes: [{ key: {} }] }, { ...record, at: 'yesterday' }].map((one) => JSON.stringify(one));
    for (const bad of ['', '{}', '[1]', '{"bench":"split"}', ...wrong]) {
      assert.throws(() => parseRecord(bad), { code: 'MALFORMED' }, bad);
    }
  });

  it('names a ratio by its lane', () => {
    const lane = aLane({ key: { model: '1b', context: 128 }, ratios: { 'decode/a_over_b': 2 } });
    assert.deepEqual(flatRatios([lane]), { '1b/128/decode/a_over_b': 2 });
  });
});
