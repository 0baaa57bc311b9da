import type { Argv } from 'yargs';
import { formatError, MeshnetError, toMeshnetError, type ErrorCode } from '../errors.ts';

/** Exit codes of every command. */
export const EXIT = Object.freeze({
  ok: 0,
  /** The command could not do what it was asked. */
  failed: 1,
  /** The command line or the configuration is wrong. */
  usage: 2,
  /** Ended by Ctrl-C or SIGTERM before it was done. */
  interrupted: 130,
});

const USAGE: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['CONFIG_INVALID', 'RANGE_INVALID', 'REQUEST_INVALID']);

export function exitCodeOf(err: unknown): number {
  const { code } = toMeshnetError(err);
  if (code === 'CANCELLED') {
    return EXIT.interrupted;
  }
  return USAGE.has(code) ? EXIT.usage : EXIT.failed;
}

/** For yargs: what is wrong with the command line stands under the help; an error of the command is its caller's. */
export function onFailure(usageError: () => void): (message: string, err: Error | undefined, cli: Argv) => void {
  return (message, err, cli) => {
    if (err != null) {
      throw err;
    }
    cli.showHelp('error');
    process.stderr.write(`\n${message}\n`);
    usageError();
  };
}

/** One line of NDJSON on stdout. */
export function printJson(value: unknown): void {
  const line = JSON.stringify(value, (_key, inner: unknown) => typeof inner === 'bigint' ? inner.toString() : inner);
  process.stdout.write(`${line}\n`);
}

/** For people on stderr; with `json` as `{error}` on stdout too. */
export function printError(err: unknown, json: boolean): void {
  process.stderr.write(`${printable(formatError(err))}\n`);
  if (json) {
    const { code, message, details } = toMeshnetError(err);
    printJson({ error: { code, message, details } });
  }
}

/** Text of a model. A terminal gets it without what would control the terminal. */
export function printText(text: string): void {
  process.stdout.write(process.stdout.isTTY ? printable(text) : text);
}

/** Peers and models choose these characters: none of them may move a cursor, set a title or fill the clipboard. */
export function printable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '\ufffd');
}

/** @throws {MeshnetError} CONFIG_INVALID for what yargs took for a number */
export function assertCount(field: string, value: number | undefined): void {
  if (value !== undefined && !(Number.isSafeInteger(value) && value > 0)) {
    throw new MeshnetError('CONFIG_INVALID', `--${field} wants a whole number above 0`, { details: { field } });
  }
}

/** A wrapper such as npm passes on the Ctrl-C that the terminal has told us already. */
const SAME_SIGNAL_MS = 1000;

/** Aborted by the first Ctrl-C or SIGTERM; another one after it ends the process. */
export function interruptSignal(): AbortSignal {
  const controller = new AbortController();
  let firstAt: number | undefined;
  const onSignal = (): void => {
    if (firstAt === undefined) {
      firstAt = performance.now();
      controller.abort();
    } else if (performance.now() - firstAt > SAME_SIGNAL_MS) {
      process.exit(EXIT.interrupted);
    }
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
  return controller.signal;
}

/** Why a wait with this aborted signal ended: a person's wish, or the clock, of which `late` tells. */
export function givenUp(signal: AbortSignal, late: string, cause?: unknown): MeshnetError {
  const options = cause === undefined ? {} : { cause };
  return signal.reason instanceof DOMException && signal.reason.name === 'TimeoutError'
    ? new MeshnetError('DEADLINE_EXCEEDED', late, options)
    : new MeshnetError('CANCELLED', undefined, options);
}
