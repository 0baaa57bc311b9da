import { appendFileSync } from 'node:fs';
import yargs from 'yargs';
import type { Bench } from './bench.ts';
import { commit } from './runner/machine.ts';
import { seam } from './seam/seam.ts';
import { split } from './split/split.ts';

const BENCHES: Readonly<Record<string, Bench>> = { seam, split };

const argv = await yargs(process.argv.slice(2))
  .scriptName('npm run bench --')
  .usage('$0 NAME [options]\n\nRuns one benchmark. Nothing else should run beside it.')
  .command('$0 <name>', 'Runs one benchmark', (command) => command.positional('name', { choices: Object.keys(BENCHES), demandOption: true }))
  .option('json', { type: 'boolean', describe: 'End with one line {bench, ratios, context}' })
  .option('smoke', { type: 'boolean', default: false, describe: 'As little as possible: shows that it runs' })
  .option('out', { type: 'string', describe: 'Append the whole record to this file (JSON lines)' })
  .strict()
  .help()
  .parseAsync();

const result = await (BENCHES[argv['name'] as string] as Bench)({
  smoke: argv.smoke,
  signal: new AbortController().signal,
  say: (text) => { process.stderr.write(`${text}\n`); },
});
process.stdout.write(`${result.table.join('\n')}\n`);
if (argv.out !== undefined) {
  const { bench, ratios, context, details } = result;
  appendFileSync(argv.out, `${JSON.stringify({ at: new Date().toISOString(), commit: commit(), bench, ratios, context, details })}\n`);
}
if (argv.json === true) {
  const { bench, ratios, context } = result;
  process.stdout.write(`${JSON.stringify({ bench, ratios, context })}\n`);
}
