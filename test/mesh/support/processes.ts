/** The command line as a user runs it, and what it leaves running. */
import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../../..');
const PROGRAM = join(root, 'bin/meshnet.js');

export interface Finished {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandInit {
  readonly env?: Readonly<Record<string, string>>;
  /** Killed, and so failed, after this. @default 60000 ms */
  readonly timeoutMs?: number;
}

/** One run of `meshnet`. Nothing of the tester's own configuration reaches it. */
export class Command {
  readonly finished: Promise<Finished>;
  readonly #child: ChildProcess;
  #stdout = '';
  #stderr = '';

  constructor(args: readonly string[], { env = {}, timeoutMs = 60_000 }: CommandInit = {}) {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('MESHNET_'));
    this.#child = spawn(process.execPath, [PROGRAM, ...args], {
      env: { ...Object.fromEntries(inherited), ...env }, stdio: ['ignore', 'pipe', 'pipe'], timeout: timeoutMs, killSignal: 'SIGKILL',
      // A process group of its own, as a shell gives to what it runs.
      detached: true,
    });
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => { this.#stdout += text; });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => { this.#stderr += text; });
    this.finished = new Promise((resolve) => {
      this.#child.once('close', (code) => resolve({ code, stdout: this.#stdout, stderr: this.#stderr }));
    });
  }

  get output(): string {
    return this.#stdout + this.#stderr;
  }

  /** Ctrl-C: a terminal tells every process of the group, also those that this one has started. */
  interrupt(): void {
    process.kill(-(this.#child.pid as number), 'SIGINT');
  }

  /** To the command alone. */
  terminate(): void {
    this.#child.kill('SIGTERM');
  }

  /** To the command alone, which cannot clean up. */
  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

export function meshnet(args: readonly string[], init?: CommandInit): Promise<Finished> {
  return new Command(args, init).finished;
}

/** The last line of `text` as JSON. */
export function lastJson(text: string): unknown {
  return JSON.parse(text.trimEnd().split('\n').at(-1) ?? '');
}

/** Command lines of the running processes that name `folder`: nodes by their data directory, workers by their socket. */
export function processesOf(folder: string): string[] {
  const found: string[] = [];
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      if (line.includes(folder)) {
        found.push(`${pid} ${line}`);
      }
    } catch {
      // It has ended between the two calls.
    }
  }
  return found;
}

/** The first value of `look` that is not undefined. Rejects with what was wanted when it takes too long. */
export async function until<T>(what: string, look: () => T | undefined | Promise<T | undefined>, timeoutMs = 30_000): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) {
      return found;
    }
    if (performance.now() > deadline) {
      throw new Error(`not within ${timeoutMs} ms: ${what}`);
    }
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}
