import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GATE1 } from '../../bench/contract.ts';
import { generatedModel, program } from './support/programs.ts';

const FIXTURES = join(import.meta.dirname, '../../bench/reference/fixtures');
const PROGRAM_MS = 60_000;
/** A shard keeps so many rows of logits of one decode. */
const LOGITS_MAX = 64;

interface Fixture {
  readonly generator: Record<string, string>;
  readonly gguf_sha256: string;
  readonly n_vocab: number;
  readonly sequences: readonly { readonly ids: readonly number[] }[];
}

/** How far logits are from those of the fixture: the worst row's share, and the mean over rows in nats. */
interface Distance {
  readonly rows: number;
  readonly difference: number;
  readonly kl: number;
}

interface Row {
  readonly seq: number;
  readonly pos: number;
  readonly token: number;
}

const fixtureOf = (name: string): Fixture => JSON.parse(readFileSync(join(FIXTURES, `${name}.json`), 'utf8')) as Fixture;

function floatsOf(file: string): Float32Array {
  const bytes = readFileSync(file);
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
}

/** Rows of all sequences, one sequence after another, as the fixture has them. */
function rowsOf({ sequences }: Fixture): Row[] {
  return sequences.flatMap(({ ids }, seq) => ids.map((token, pos) => ({ seq, pos, token })));
}

const line = ({ seq, pos, token }: Row, want: boolean): string => `row ${token} ${pos} ${seq} ${want ? 1 : 0}`;

/** All sequences in one decode, again for every piece of the logits that it may keep. */
function together(rows: readonly Row[]): string[] {
  const script: string[] = [];
  for (let first = 0; first < rows.length; first += LOGITS_MAX) {
    script.push(...new Set(rows.map(({ seq }) => `clear ${seq}`)));
    script.push(...rows.map((row, i) => line(row, i >= first && i < first + LOGITS_MAX)), 'run');
  }
  return script;
}

const oneByOne = (rows: readonly Row[]): string[] => rows.flatMap((row) => [line(row, true), 'run']);

/** Throws when the worker did not give a row for each of the reference. */
function distance(actual: Float32Array, expected: Float32Array, nVocab: number): Distance {
  assert.equal(actual.length, expected.length);
  const rows = expected.length / nVocab;
  let difference = 0;
  let kl = 0;
  for (let row = 0; row < rows; row++) {
    const [a, e] = [actual, expected].map((all) => all.subarray(row * nVocab, (row + 1) * nVocab)) as [Float32Array, Float32Array];
    const mean = e.reduce((sum, x) => sum + x, 0) / nVocab;
    difference = Math.max(difference, Math.hypot(...e.map((x, i) => x - (a[i] as number))) / Math.hypot(...e.map((x) => x - mean)));
    const [logA, logE] = [logNorm(a), logNorm(e)];
    kl += e.reduce((sum, x, i) => sum + Math.exp(x - logE) * (x - logE - ((a[i] as number) - logA)), 0) / rows;
  }
  return { rows, difference, kl };
}

function logNorm(logits: Float32Array): number {
  const max = logits.reduce((most, x) => Math.max(most, x), -Infinity);
  return max + Math.log(logits.reduce((sum, x) => sum + Math.exp(x - max), 0));
}

function assertHolds({ rows, difference, kl }: Distance, wanted: number): void {
  assert.equal(rows, wanted);
  assert.ok(difference <= GATE1.reference.difference, `a row differs by ${difference}`);
  assert.ok(kl <= GATE1.reference.kl, `mean KL is ${kl}`);
}

describe('native/transformers', function () {
  this.timeout(PROGRAM_MS);
  let scratch = '';
  before(() => { scratch = mkdtempSync(join(tmpdir(), 'meshnet-transformers-')); });
  after(() => rmSync(scratch, { recursive: true, force: true }));

  /** The worker's logits for a script, on the fixture's model or on another that differs in `change`. */
  async function logits(fixture: Fixture, script: readonly string[], { cuts, change = {} }: { cuts?: string; change?: Record<string, string> } = {}): Promise<Float32Array> {
    const model = await generatedModel({ ...fixture.generator, ...change });
    const out = join(scratch, 'logits.f32');
    const args = ['--model', model, '--logits', out, ...(cuts === undefined ? [] : ['--cuts', cuts])];
    execFileSync(program('meshnet-replay'), args, { input: `${script.join('\n')}\n`, timeout: PROGRAM_MS });
    return floatsOf(out);
  }

  for (const name of ['tied', 'untied']) {
    const fixture = fixtureOf(name);
    const expected = floatsOf(join(FIXTURES, `${name}.f32`));
    const rows = rowsOf(fixture);
    const far = async (change: Record<string, string>): Promise<Distance> =>
      distance(await logits(fixture, together(rows), { change }), expected, fixture.n_vocab);

    it(`generates the ${name} model that Transformers computed`, async () => {
      const digest = createHash('sha256').update(readFileSync(await generatedModel(fixture.generator))).digest('hex');
      assert.equal(digest, fixture.gguf_sha256);
    });

    for (const cuts of [undefined, '1', '2']) {
      const shards = cuts === undefined ? 'whole' : `cut at ${cuts}`;

      it(`gives the logits of Transformers for the ${name} model, ${shards}, from a batch of sequences`, async () => {
        assertHolds(distance(await logits(fixture, together(rows), { cuts }), expected, fixture.n_vocab), rows.length);
      });

      it(`gives the logits of Transformers for the ${name} model, ${shards}, token by token`, async () => {
        assertHolds(distance(await logits(fixture, oneByOne(rows), { cuts }), expected, fixture.n_vocab), rows.length);
      });
    }

    it(`would see other weights than those of the ${name} model`, async () => {
      const { difference, kl } = await far({ seed: '3' });
      assert.ok(difference > 1 && kl > 1);
    });

    it(`would see that positions of the ${name} model are rotated by a base that is 2 % off`, async () => {
      const base = Number(fixture.generator['rope-base'] ?? 10_000);
      const { difference, kl } = await far({ 'rope-base': String(base * 1.02) });
      assert.ok(difference > GATE1.reference.difference, `a row differs by ${difference}`);
      assert.ok(kl > GATE1.reference.kl, `mean KL is ${kl}`);
    });
  }
});
