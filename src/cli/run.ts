import { readFileSync } from 'node:fs';
import path from 'node:path';
import yargs from 'yargs';
import { chatCommand } from './chat.ts';
import { demoCommand } from './demo.ts';
import { EXIT, exitCodeOf, onFailure, printError } from './output.ts';
import { pullCommand } from './pull.ts';
import { statusCommand } from './status.ts';
import { upCommand } from './up.ts';

const PACKAGE = path.join(import.meta.dirname, '..', '..', 'package.json');
const { version } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string };

/** Runs one command line; gives the exit code. */
export async function runCli(argv: readonly string[]): Promise<number> {
  let exitCode: number = EXIT.ok;
  const cli = yargs([...argv])
    .scriptName('meshnet')
    .usage('$0 COMMAND\n\nRun open models together, on the machines of volunteers.')
    .command(upCommand)
    .command(demoCommand)
    .command(chatCommand)
    .command(statusCommand)
    .command(pullCommand)
    .demandCommand(1, 'Name a command.')
    .strict()
    .version(version)
    .help()
    .wrap(Math.min(100, process.stdout.columns ?? 100))
    .exitProcess(false)
    .fail(onFailure(() => { exitCode = EXIT.usage; }));
  try {
    await cli.parseAsync();
  } catch (err) {
    printError(err, argv.includes('--json'));
    exitCode = exitCodeOf(err);
  }
  return exitCode;
}
