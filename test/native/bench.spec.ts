import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findReference } from '../../bench/gate1/reference.ts';
import { DelayLine } from '../../bench/wan/delay-line.ts';
import { valueOf } from '../../bench/runner/lane-record.ts';
import { readRecords } from '../../bench/runner/record.ts';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
/** The split builds llama-bench of the unpatched tree when it is not there. */
const BENCH_MS = 600_000;

interface Line {
  bench: string;
  ratios: Record<string, number>;
  context: Record<string, unknown>;
}

/** With the Python side or, where nobody has installed it, without. */
const withPython = await findReference() !== undefined;
const FORMATS = ['f16', 'q8_0', 'q4_0'];
const MEASURES = ['decode', 'prefill', 'memory'];

function gate1Ratios(): string[] {
  const held = (question: string, systems: readonly string[]): string[] =>
    systems.flatMap((system) =>
      ['kl', 'top1', 'difference'].map((figure) => `generated/${question}/${figure}/${system}`));
  const speed = withPython
    ? FORMATS.flatMap((format) => MEASURES.map((measure) => `${measure}/${format}_over_transformers`))
    : ['q8_0', 'q4_0'].flatMap((format) => MEASURES.map((measure) => `${measure}/${format}_over_f16`));
  return [
    ...held('agreement', FORMATS),
    ...withPython ? held('reference', ['f32', 'f32_decode']) : [],
    ...['generated/32/1/sampled', 'generated/32/4/greedy'].flatMap((lane) => speed.map((name) => `${lane}/${name}`)),
  ];
}

/** Where the machine allows no delay line, every lane of it is left out with that as the reason. */
const withLine = await DelayLine.unavailable() === undefined;

function gate5Ratios(): string[] {
  return !withLine ? [] : [
    ...['local', 'rpc1l', 'rpc1l_head', 'rpc2'].map((name) => `generated/32/1/0/decode/ours_over_${name}`),
    'generated/32/1/0/token/ours_over_law', 'generated/32/1/0/memory/ours_over_bound',
    'generated/64/1/0/prefill/ours_over_local', 'generated/64/1/0/prefill/ours_over_rpc1l', 'generated/64/1/0/memory/ours_over_bound',
    ...['bytes/ours_over_bound', 'messages/ours_per_microbatch', 'logits/ours_bytes', 'wire/ours_over_rpc1l', 'wire/ours_over_rpc2']
      .map((name) => `wire/generated/32/1/0/${name}`),
  ];
}

const loadRatios = [
  'stall_rss_growth_mib', 'stall_others_speed',
  ...['queued', 'prefill', 'decode_stream', 'decode_whole', 'prefill_alone'].map((phase) => `disconnect_${phase}_ms`),
  ...['admitted_speed', 'untyped', 'rss_back_mib', 'fds_back', 'left'].map((figure) => `overload_${figure}`),
];

const concurrencyRatios = !withLine ? [] : [
  'mesh8_over_one8_0ms', 'jain_mesh8_0ms', 'one8_over_stock8', 'mesh1_over_one8_5ms', 'delay_law_5ms',
  'decoders_p95_over_undisturbed_0ms', 'long_first_token_over_alone_0ms', 'second_turn_ttft_over_cold_0ms',
];

/** Every benchmark, and the ratios of its smoke run. */
const RATIOS: Record<string, string[]> = {
  concurrency: concurrencyRatios,
  gate1: gate1Ratios(),
  gate5: gate5Ratios(),
  load: loadRatios,
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
      assert.equal(record.lanes.length > 0, ratios.length > 0);
      assert.equal(record.context.engine !== 'none', record.lanes.length > 0);
    });
  }

  it('ends in order when it is told to twice at once', async function () {
    this.timeout(BENCH_MS);
    const child = spawn(process.execPath, ['bench/main.ts', 'gate1', '--smoke'], { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] });
    // Both at once, and two kinds, which the system does not merge: Node gives signals back in its last moments,
    // and a second one that comes then would end it by the signal.
    child.stderr.once('data', () => {
      child.kill('SIGINT');
      child.kill('SIGTERM');
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => { said += text; });
    assert.deepEqual(await once(child, 'close'), [130, null]);
    assert.match(said, /^E_CANCELLED: interrupted/m);
  });

  it('says by which command gate1 gets what it needs, and ends with the code of a wrong setting', async function () {
    this.timeout(BENCH_MS);
    if (withPython) {
      console.log('    skipped: what it would miss is installed here');
      this.skip();
    }
    await assert.rejects(
      run(process.execPath, ['bench/main.ts', 'gate1'], { cwd: root, timeout: BENCH_MS }),
      ({ code, stderr }: { code: number; stderr: string }) =>
        code === 2 && stderr.includes('E_CONFIG_INVALID') && stderr.includes('bash bench/reference/setup.sh'),
    );
  });
});
