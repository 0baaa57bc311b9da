import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MeshnetError } from '../errors.ts';
import type { GrpcTarget } from './grpc.ts';
import { makeSocketFolder } from './socket-folder.ts';

const TOKEN_BYTES = 32;
/** What is kept of stderr for the error of a process that died. */
const STDERR_LINES = 20;
const STDERR_LINE_CHARS = 400;

/** Nothing of the node's own environment; idle threads sleep, because several processes share the cores. */
const ENVIRONMENT: Readonly<Record<string, string>> = Object.freeze({ LC_ALL: 'C.UTF-8', OMP_WAIT_POLICY: 'passive' });

export interface ChildInit {
  /** Absolute path of the program. */
  readonly binary: string;
  /** Arguments, without a shell. */
  readonly args: (boot: ChildPaths) => readonly string[];
  /** Folder in which the boot makes its own; the system's temporary folder when a socket there would be too long. */
  readonly runtimeDir: string;
  /** On top of the minimal environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** From SIGTERM to SIGKILL. @default 5000 ms */
  readonly stopTimeoutMs?: number;
}

export interface ChildPaths {
  readonly socketPath: string;
  readonly tokenFile: string;
}

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its last lines on stderr. */
  readonly stderr: readonly string[];
}

/** One boot of a process beside the node, with a socket folder and a token of its own. It ends when the node does. */
export class Child {
  readonly target: GrpcTarget;
  readonly pid: number;
  /** Never rejects. */
  readonly exited: Promise<ChildExit>;
  readonly #process: ChildProcess;
  readonly #stopTimeoutMs: number;

  private constructor(process: ChildProcess, target: GrpcTarget, exited: Promise<ChildExit>, init: ChildInit) {
    this.#process = process;
    this.target = target;
    this.pid = process.pid ?? -1;
    this.exited = exited;
    this.#stopTimeoutMs = init.stopTimeoutMs ?? 5_000;
  }

  /** @throws {MeshnetError} CONFIG_INVALID when the program cannot be started */
  static async spawn(init: ChildInit): Promise<Child> {
    const folder = await makeSocketFolder(init.runtimeDir);
    const socketPath = join(folder, 's');
    const tokenFile = join(folder, 'token');
    const token = randomBytes(TOKEN_BYTES);
    try {
      await writeFile(tokenFile, token, { mode: 0o600, flag: 'wx' });
      const child = spawn(init.binary, [...init.args({ socketPath, tokenFile })], {
        // The child ends when its stdin does; its stdout is nobody's.
        stdio: ['pipe', 'ignore', 'pipe'],
        env: { ...ENVIRONMENT, ...init.env },
        shell: false,
      });
      child.on('error', () => undefined);
      child.stdin?.on('error', () => undefined);
      const stderr = keepLastLines(child);
      await once(child, 'spawn');
      const exited = new Promise<ChildExit>((resolve) => {
        child.once('close', (code, signal) => {
          void rm(folder, { recursive: true, force: true }).then(() => resolve({ code, signal, stderr: [...stderr] }));
        });
      });
      return new Child(child, { socketPath, token }, exited, init);
    } catch (cause) {
      await rm(folder, { recursive: true, force: true });
      throw new MeshnetError('CONFIG_INVALID', `the program ${init.binary} cannot be started`, {
        cause,
        details: { binary: init.binary },
      });
    }
  }

  /** SIGKILL. */
  kill(): void {
    this.#process.kill('SIGKILL');
  }

  /** SIGTERM, and SIGKILL when that was not enough in time. */
  async stop(): Promise<ChildExit> {
    this.#process.stdin?.end();
    this.#process.kill('SIGTERM');
    const timer = setTimeout(() => this.kill(), this.#stopTimeoutMs);
    try {
      return await this.exited;
    } finally {
      clearTimeout(timer);
    }
  }
}

function keepLastLines(child: ChildProcess): string[] {
  const lines: string[] = [];
  if (child.stderr !== null) {
    createInterface({ input: child.stderr }).on('line', (line) => {
      lines.push(line.slice(0, STDERR_LINE_CHARS));
      if (lines.length > STDERR_LINES) {
        lines.shift();
      }
    });
  }
  return lines;
}
