import { spawn } from 'node:child_process';
import { MeshnetError } from '../errors.ts';
import { abortError, throwIfAborted } from './abort.ts';

const TAIL_CHARACTERS = 2000;

export interface RunOptions {
  signal: AbortSignal;
  /** Until it is killed, milliseconds. */
  timeoutMs: number;
  /** Set beside the variables of this process. */
  env?: Record<string, string>;
  /** Takes what it writes; nothing does when left out. */
  stdout?: number;
}

/** Says that the program does not exist or could not run. */
export class ProgramMissingError extends Error {
  override readonly name = 'ProgramMissingError';
}

/**
 * Runs a program to its end, with whatever it starts in a process group that is killed on abort.
 *
 * @returns its exit code and the end of what it said on stderr
 * @throws {ProgramMissingError}
 * @throws {MeshnetError} CANCELLED, DEADLINE_EXCEEDED
 */
export async function runProgram(
  command: string,
  args: readonly string[],
  { signal, timeoutMs, env, stdout }: RunOptions,
): Promise<{ code: number; stderr: string }> {
  throwIfAborted(signal);
  const child = spawn(command, args, {
    detached: true,
    stdio: ['ignore', stdout ?? 'ignore', 'pipe'],
    env: { ...process.env, ...env },
  });
  const ended = Promise.withResolvers<number>();
  child.once('error', (cause) => ended.reject(new ProgramMissingError(`${command} cannot be run`, { cause })));
  child.once('close', (code) => ended.resolve(code ?? -1));
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => { stderr = (stderr + text).slice(-TAIL_CHARACTERS); });

  let stopped: MeshnetError | undefined;
  const stop = (why: MeshnetError): void => {
    stopped ??= why;
    kill(child.pid);
  };
  const onAbort = (): void => stop(abortError(signal));
  const timer = setTimeout(() => {
    stop(new MeshnetError('DEADLINE_EXCEEDED', `${command} took too long`, { details: { command, timeoutMs } }));
  }, timeoutMs);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    const code = await ended.promise;
    if (stopped !== undefined) {
      throw stopped;
    }
    return { code, stderr: stderr.trim() };
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

function kill(pid: number | undefined): void {
  if (pid === undefined) {
    return;
  }
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code !== 'ESRCH') {
      throw err;
    }
  }
}

/** The last line of what a program said, for error details. */
export function lastLine(text: string): string {
  return text.slice(text.lastIndexOf('\n') + 1).slice(0, 300);
}
