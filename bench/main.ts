import yargs from 'yargs';
import { formatError, MeshnetError } from '../src/errors.ts';
import type { Bench } from './bench.ts';
import { compare } from './runner/compare.ts';
import { judgement, recordsOf } from './runner/judge.ts';
import { draw } from './runner/picture.ts';
import { picturesOf } from './runner/pictures.ts';
import { appendRecord, laneName, readRecords, recordOf, valueOf, type BenchRecord } from './runner/record.ts';
import { seam } from './seam/seam.ts';
import { split } from './split/split.ts';

const BENCHES: Readonly<Record<string, Bench>> = { seam, split };

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

/** @returns whether everything that was judged holds */
async function runBench(name: string, options: RunOptions, signal: AbortSignal): Promise<boolean> {
  const pattern = new RegExp(options.lanes ?? '');
  // Read before it runs: what is wrong with the file is told at once, and `--out` may name the same one.
  const old = options.compare === undefined ? undefined : recordedOf(options.compare, name);
  const result = await (BENCHES[name] as Bench)({
    smoke: options.smoke, signal,
    say: (text) => { process.stderr.write(`${text}\n`); },
    wants: (key) => pattern.test(laneName(key)),
  });
  const record = recordOf({ ...result, context: { ...result.context, smoke: options.smoke } });
  print(result.table);
  if (options.out !== undefined) {
    appendRecord(options.out, record);
  }
  drawInto(options.pictures, [record]);
  const comparison = old === undefined ? undefined : compare(old, record);
  print(comparison?.lines ?? []);
  if (options.json) {
    const { bench, ratios, context } = record;
    print([JSON.stringify({ bench, ratios: Object.fromEntries(Object.entries(ratios).map(([key, one]) => [key, valueOf(one)])), context })]);
  }
  return comparison?.changes.every(({ verdict }) => verdict !== 'fails') ?? true;
}

function recordedOf(file: string, bench: string) {
  const record = readRecords(file).findLast((one) => one.bench === bench && one.context['smoke'] !== true);
  if (record === undefined) {
    throw new MeshnetError('CONFIG_INVALID', `${file} has no record of ${bench}`, { details: { field: '--compare' } });
  }
  return record;
}

/** The newest of each benchmark. */
function drawInto(folder: string | undefined, records: readonly BenchRecord[]): void {
  if (folder !== undefined) {
    const newest = new Map(records.map((record) => [record.bench, record]));
    const files = draw([...newest.values()].flatMap(picturesOf), folder);
    process.stderr.write(`drawn: ${files.join(', ')}\n`);
  }
}

function judgeFiles({ files, json, pictures }: { files: readonly string[]; json: boolean; pictures?: string | undefined }): boolean {
  const records = recordsOf(files);
  const { verdicts, lines } = judgement(records);
  print(lines);
  drawInto(pictures, records);
  if (json) {
    print([JSON.stringify({ verdicts })]);
  }
  return verdicts.every(({ verdict }) => verdict !== 'fails');
}

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) {
  process.once(name, () => { stop.abort(new MeshnetError('CANCELLED', `stopped by ${name}`)); });
}

let strict = false;
let holds = true;
try {
  await yargs(process.argv.slice(2))
    .scriptName('npm run bench --')
    .usage('$0 NAME [options]\n\nRuns one benchmark, or judges records. Nothing else should run beside it.')
    .option('json', { type: 'boolean', default: false, describe: 'End with one line of JSON' })
    .option('strict', { type: 'boolean', default: false, describe: 'Exit code 1 when a threshold or --compare fails' })
    .option('pictures', { type: 'string', describe: 'Draw the results into this folder, as SVG and PNG' })
    .command('judge [files..]', 'Judges records by bench/CONTRACT.md; without files all of bench/results', (command) => command
      .positional('files', { type: 'string', array: true, default: [] as string[] }), (argv) => {
      strict = argv.strict;
      holds = judgeFiles(argv);
    })
    .command('$0 <name>', 'Runs one benchmark', (command) => command
      .positional('name', { choices: Object.keys(BENCHES), demandOption: true })
      .option('smoke', { type: 'boolean', default: false, describe: 'As little as possible: shows that it runs' })
      .option('out', { type: 'string', describe: 'Append the whole record to this file (JSON lines)' })
      .option('compare', { type: 'string', describe: 'Compare with the last record of the same benchmark in this file' })
      .option('lanes', { type: 'string', describe: 'Only lanes whose name, fields joined by /, matches this regular expression' }), async (argv) => {
      strict = argv.strict;
      holds = await runBench(argv.name, argv, stop.signal);
    })
    .strict()
    .help()
    .parseAsync();
} catch (err) {
  process.stderr.write(`${formatError(err)}\n`);
  holds = false;
  strict = true;
}
process.exitCode = strict && !holds ? 1 : 0;
