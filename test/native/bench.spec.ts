import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { readRecords, valueOf } from '../../bench/runner/record.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
/** The split builds llama-bench of the unpatched tree when it is not there. */
const BENCH_MS = 600_000;

interface Line {
  bench: string;
  ratios: Record<string, number>;
  context: Record<string, unknown>;
}

/** Every benchmark, and the ratios of its smoke run. */
const RATIOS: Record<string, string[]> = {
  seam: ['2k', '8k', '16k'].flatMap((size) => [`seam_${size}_added_ms`, `seam_${size}_over_tcp`]),
  split: [
    'decode_mesh_over_one_process',
    'prefill_mesh_over_one_process',
    'decode_one_process_over_stock',
    'prefill_one_process_over_stock',
  ],
};

describe('native/bench', () => {
  let dir = '';
  beforeEach(async () => { dir = await mkdtemp(join(tmpdir(), 'meshnet-bench-test-')); });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  for (const [name, ratios] of Object.entries(RATIOS)) {
    it(`runs ${name} and ends with one line of its ratios`, async function () {
      this.timeout(BENCH_MS);
      const out = join(dir, 'records.jsonl');
      const args = ['bench/main.ts', name, '--smoke', '--json', '--out', out];
      const { stdout } = await run(process.execPath, args, { cwd: root, timeout: BENCH_MS });
      const line = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Line;
      assert.equal(line.bench, name);
      assert.deepEqual(Object.keys(line.ratios), ratios);
      for (const [key, value] of Object.entries(line.ratios)) {
        assert.ok(Number.isFinite(value), `${key} is ${value}`);
      }
      const [record, ...more] = readRecords(out);
      assert.ok(record !== undefined && more.length === 0);
      assert.deepEqual(record.context, line.context);
      assert.equal(record.context['smoke'], true);
      assert.deepEqual(Object.fromEntries(Object.entries(record.ratios).map(([key, figure]) => [key, valueOf(figure)])), line.ratios);
      assert.ok(record.lanes.length > 0);
    });
  }
});
