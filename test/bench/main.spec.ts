import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { flatRatios } from '../../bench/runner/record.ts';
import { aLane, aRecord } from './runner/some-record.ts';

const RUN_MS = 60_000;

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function bench(...args: string[]): Promise<Ran> {
  return new Promise((resolve) => {
    execFile(process.execPath, ['bench/main.ts', ...args], { timeout: RUN_MS }, (err, stdout, stderr) => {
      resolve({ code: err === null ? 0 : Number(err.code), stdout, stderr });
    });
  });
}

describe('bench/main', function () {
  this.timeout(RUN_MS);
  let dir = '';
  beforeEach(async () => { dir = await mkdtemp(join(tmpdir(), 'meshnet-bench-main-')); });
  afterEach(() => rm(dir, { recursive: true, force: true }));

  /** A file with one record, whose mesh is so fast. */
  async function recorded(decode: number): Promise<string> {
    const lanes = [aLane({ key: { model: '1.1B shape, q4_0' }, ratios: { decode_mesh_over_one_process: decode } })];
    const file = join(dir, 'records.jsonl');
    await writeFile(file, `${JSON.stringify(aRecord({ lanes, ratios: flatRatios(lanes) }))}\n`);
    return file;
  }

  it('judges the committed results, and ends with its verdicts as JSON', async () => {
    const { code, stdout } = await bench('judge', '--json');
    assert.equal(code, 0);
    assert.match(stdout, /^S\.decode +(holds|fails) +/m);
    assert.match(stdout, /^gate 1: /m);
    const { verdicts } = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as { verdicts: { id: string }[] };
    assert.ok(verdicts.some(({ id }) => id === 'S.seam'));
  });

  it('fails by its exit code only when it is strict', async () => {
    const file = await recorded(0.5);
    const lenient = await bench('judge', file);
    assert.match(lenient.stdout, /^S\.decode +fails +0\.5 +≥ 0\.9 /m);
    assert.equal(lenient.code, 0);
    assert.equal((await bench('judge', file, '--strict')).code, 1);
  });

  it('draws the newest record of each benchmark', async () => {
    const out = join(dir, 'pictures');
    assert.equal((await bench('judge', await recorded(0.95), '--pictures', out)).code, 0);
    assert.deepEqual((await readdir(out)).toSorted(), ['split-decode.png', 'split-decode.svg']);
  });

  it('tells what is wrong with a name, an option or a file, and runs nothing', async () => {
    const nothing = await bench('nothing');
    assert.deepEqual([nothing.code, nothing.stdout], [2, '']);
    assert.match(nothing.stderr, /Given: "nothing"/);
    assert.equal((await bench('seam', '--fast')).code, 2);
    assert.match((await bench('seam', '--lanes', '(')).stderr, /^E_CONFIG_INVALID: --lanes is no regular expression/);
    const file = await recorded(1);
    const other = await bench('seam', '--compare', file);
    assert.equal(other.code, 2);
    assert.match(other.stderr, /^E_CONFIG_INVALID: .* has no record of seam/);
    await writeFile(file, 'nothing\n');
    assert.match((await bench('judge', file)).stderr, /^E_MALFORMED: not the record of a benchmark/);
    const missing = await bench('judge', join(dir, 'nowhere.jsonl'));
    assert.equal(missing.code, 2);
    assert.match(missing.stderr, /^E_CONFIG_INVALID: no records can be read/);
    const out = await bench('seam', '--out', join(dir, 'nowhere', 'records.jsonl'));
    assert.equal(out.code, 2);
    assert.match(out.stderr, /^E_CONFIG_INVALID: no record can be written/);
  });
});
