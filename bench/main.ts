import yargs from 'yargs';
import { EXIT, exitCodeOf, interruptSignal, onFailure } from '../src/cli/output.ts';
import { formatError, MeshnetError } from '../src/errors.ts';
import type { Bench } from './bench.ts';
import { compare } from './judging/compare.ts';
import { judgement, judgementOfRun, recordsOf } from './judging/judge.ts';
import { united } from './judging/usable-records.ts';
import { picturesOf } from './pictures/pictures.ts';
import { laneName, valueOf } from './runner/lane-record.ts';
import { commit } from './runner/machine.ts';
import { appendRecord, assertAppendable, isSmoke, readRecords, recordOf, type BenchRecord } from './runner/record.ts';

/** Loaded when it is asked for: judging needs none of what runs. */
const BENCHES: Readonly<Record<string, () => Promise<Bench>>> = {
  concurrency: async () => (await import('./concurrency/concurrency.ts')).concurrency,
  gate1: async () => (await import('./gate1/gate1.ts')).gate1,
  gate5: async () => (await import('./gate5/gate5.ts')).gate5,
  load: async () => (await import('./load/load.ts')).load,
  seam: async () => (await import('./seam/seam.ts')).seam,
  split: async () => (await import('./split/split.ts')).split,
};

interface RunOptions {
  readonly json: boolean;
  readonly smoke: boolean;
  readonly out?: string | undefined;
  readonly compare?: string | undefined;
  readonly lanes?: string | undefined;
  readonly pictures?: string | undefined;
  readonly strict: boolean;
}

const print = (lines: readonly string[]): void => { process.stdout.write(lines.map((line) => `${line}\n`).join('')); };

/** @returns the exit code */
async function runBench(name: string, options: RunOptions, signal: AbortSignal): Promise<number> {
  const pattern = patternOf(options.lanes ?? '');
  // Looked at before it runs: what is wrong with a file is told at once, and `--out` may name the one of `--compare`.
  const old = options.compare === undefined ? undefined : recordedOf(options.compare, name);
  if (options.out !== undefined) {
    assertAppendable(options.out);
  }
  const checkout = commit();
  const bench = await (BENCHES[name] as () => Promise<Bench>)();
  const result = await bench({
    smoke: options.smoke, signal,
    say: (text) => { process.stderr.write(`${text}\n`); },
    wants: (key) => pattern.test(laneName(key)),
  });
  print(result.table);
  const record = recordOf({ ...result, commit: checkout, context: { ...result.context, smoke: options.smoke } });
  if (record.lanes.length === 0 && !options.smoke) {
    process.stderr.write('nothing was measured, and nothing is recorded\n');
    return signal.aborted ? EXIT.interrupted : EXIT.failed;
  }
  if (options.out !== undefined) {
    keep(options.out, record);
  }
  const judged = options.smoke ? undefined : judgementOfRun(record);
  // Gate 1 ends with its decision, and what it was made of.
  print(name === 'gate1' ? [] : judged?.lines ?? []);
  const comparison = old === undefined ? undefined : compare(old, record);
  print(comparison?.lines ?? []);
  await drawInto(options.pictures, [record]);
  if (options.json) {
    const { bench, ratios, context } = record;
    const medians = Object.fromEntries(Object.entries(ratios).map(([key, figure]) => [key, valueOf(figure)]));
    print([JSON.stringify({ bench, ratios: medians, context })]);
  }
  const holds = (judged?.holds ?? true) && (comparison?.holds ?? true);
  // What was measured before Ctrl-C is in the record; the run was not done all the same.
  return signal.aborted ? EXIT.interrupted : holds || !options.strict ? EXIT.ok : EXIT.failed;
}

/** What cannot be written is told, not lost. */
function keep(file: string, record: BenchRecord): void {
  try {
    appendRecord(file, record);
  } catch (err) {
    process.stderr.write(`${JSON.stringify(record)}\n`);
    throw new MeshnetError('INTERNAL', `the record above was not written: ${String(err)}`, { details: { file }, cause: err });
  }
}

function patternOf(lanes: string): RegExp {
  try {
    return new RegExp(lanes);
  } catch (err) {
    throw new MeshnetError('CONFIG_INVALID', `--lanes is no regular expression: ${lanes}`, { details: { field: '--lanes' }, cause: err });
  }
}

function recordedOf(file: string, bench: string) {
  const record = readRecords(file).findLast((one) => one.bench === bench && !isSmoke(one));
  if (record === undefined) {
    throw new MeshnetError('CONFIG_INVALID', `${file} has no record of ${bench}`, { details: { field: '--compare' } });
  }
  return record;
}

async function drawInto(folder: string | undefined, records: readonly BenchRecord[]): Promise<void> {
  if (folder !== undefined) {
    const { draw } = await import('./pictures/picture.ts');
    const files = draw(records.flatMap(picturesOf), folder);
    process.stderr.write(`drawn: ${files.join(', ')}\n`);
  }
}

interface JudgeOptions {
  readonly files: readonly string[];
  readonly json: boolean;
  readonly pictures?: string | undefined;
  readonly strict: boolean;
}

/** @returns the exit code */
async function judgeFiles({ files, json, pictures, strict }: JudgeOptions): Promise<number> {
  const records = recordsOf(files);
  const { verdicts, holds, lines } = judgement(records);
  print(lines);
  await drawInto(pictures, united(records));
  if (json) {
    print([JSON.stringify({ verdicts })]);
  }
  return holds || !strict ? EXIT.ok : EXIT.failed;
}

const signal = interruptSignal();

/** 0 unless `--strict` and something fails, or the run itself does. */
let exitCode = 0;
try {
  await yargs(process.argv.slice(2))
    .scriptName('npm run bench --')
    .usage('$0 NAME [options]\n\nRuns one benchmark, or judges records. Nothing else should run beside it.')
    .option('json', { type: 'boolean', default: false, describe: 'End with one line of JSON' })
    .option('strict', { type: 'boolean', default: false, describe: 'Exit code 1 when a threshold or --compare fails, or compares nothing' })
    .option('pictures', { type: 'string', describe: 'Draw the results into this folder, as SVG and PNG' })
    .command('judge [files..]', 'Judges records by bench/CONTRACT.md; without files all of bench/results', (command) => command
      .positional('files', { type: 'string', array: true, default: [] as string[] }), async (argv) => {
      exitCode = await judgeFiles(argv);
    })
    .command('$0 <name>', 'Runs one benchmark', (command) => command
      .positional('name', { choices: Object.keys(BENCHES), demandOption: true })
      .option('smoke', { type: 'boolean', default: false, describe: 'As little as possible: shows that it runs' })
      .option('out', { type: 'string', describe: 'Append the whole record to this file (JSON lines)' })
      .option('compare', { type: 'string', describe: 'Compare with the last record of the same benchmark in this file' })
      .option('lanes', { type: 'string', describe: 'Only lanes whose name (fields joined by /) matches this regular expression' }),
    async (argv) => {
      exitCode = await runBench(argv.name, argv, signal);
    })
    .strict()
    .fail(onFailure(() => { exitCode = EXIT.usage; }))
    .help()
    .parseAsync();
} catch (err) {
  const reason: unknown = signal.aborted ? new MeshnetError('CANCELLED', 'interrupted') : err;
  process.stderr.write(`${formatError(reason)}\n`);
  exitCode = exitCodeOf(reason);
}
process.exitCode = exitCode;
