import { ERROR_CODES, type ErrorCode, MeshnetError } from '../errors.ts';
import type { ChildExit } from './child.ts';

/** The command line, or the data that it names, cannot be used: starting again changes nothing. */
const EXIT_USAGE = 2;
const EXIT_DATA = 65;

/** Faults of what was asked for, not of the process. */
const PERMANENT: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'CONFIG_INVALID',
  'MODEL_CORRUPT',
  'MODEL_MISMATCH',
  'NOT_CERTIFIED',
  'RANGE_INVALID',
]);

/** Whether a new boot would fail in the same way. */
export function isPermanent(err: MeshnetError): boolean {
  return PERMANENT.has(err.code);
}

/** Why a process ended: what it said on stderr when it found a fault, otherwise how it exited. */
export function exitError(exit: ChildExit, what: string): MeshnetError {
  const details = { exitCode: exit.code, signal: exit.signal, stderr: exit.stderr.slice(-5).join('\n') };
  const said = exit.stderr.toReversed().map(reportIn).find((report) => report !== undefined);
  if (exit.code === EXIT_USAGE) {
    const message = `the ${what} does not accept its arguments${said === undefined ? '' : `: ${said.message}`}`;
    return new MeshnetError('CONFIG_INVALID', message, { details });
  }
  if (said !== undefined && exit.code !== 0 && exit.signal === null) {
    return new MeshnetError(said.code, said.message === '' ? undefined : said.message, { details });
  }
  if (exit.code === EXIT_DATA) {
    return new MeshnetError('MODEL_CORRUPT', `the ${what} cannot use the model`, { details });
  }
  const how = exit.signal === null ? `exited with ${exit.code}` : `was ended by ${exit.signal}`;
  return new MeshnetError('WORKER_LOST', `the ${what} ${how}`, { details });
}

/** `{"error": {"code", "message"}}` on a line of its own. */
function reportIn(line: string): { code: ErrorCode; message: string } | undefined {
  if (!line.startsWith('{')) {
    return undefined;
  }
  try {
    const { error } = JSON.parse(line) as { error?: { code?: unknown; message?: unknown } };
    if (typeof error?.code !== 'string' || !(error.code in ERROR_CODES)) {
      return undefined;
    }
    return { code: error.code as ErrorCode, message: typeof error.message === 'string' ? error.message : '' };
  } catch {
    return undefined;
  }
}
