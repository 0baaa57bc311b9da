import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import { MeshnetError } from '../../src/errors.ts';

/** How long a program may take to leave after its stdin ended. */
const LEAVE_MS = 10_000;
/** Of what a program says on stderr, so much is kept for the message of its failure. */
const COMPLAINT_CHARS = 2000;

export interface LineProgramOptions {
  readonly env?: Readonly<Record<string, string>>;
}

export interface AskOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

interface Waiter {
  resolve(line: string): void;
  reject(err: Error): void;
}

/**
 * A program that answers each line on its stdin by one line of JSON. Every answer has a deadline; a program that
 * misses one is killed, since its later answers would belong to other questions.
 */
export class LineProgram {
  readonly #command: string;
  readonly #child: ChildProcess;
  readonly #closed: Promise<void>;
  readonly #lines: string[] = [];
  #waiter: Waiter | undefined;
  #failure: Error | undefined;
  #complaint = '';

  constructor(command: string, args: readonly string[], { env = {} }: LineProgramOptions = {}) {
    this.#command = [command, ...args].join(' ');
    this.#child = spawn(command, args, { stdio: 'pipe', env: { ...process.env, ...env } });
    const { stdin, stdout, stderr } = this.#child;
    // What a dead program no longer reads is told by its end.
    stdin?.on('error', () => undefined);
    stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#complaint = (this.#complaint + text).slice(-COMPLAINT_CHARS);
    });
    if (stdout !== null) {
      createInterface({ input: stdout }).on('line', (line) => { this.#take(line); });
    }
    this.#closed = new Promise((resolve) => {
      this.#child.once('error', (err) => { this.#fail(`could not run: ${err.message}`); resolve(); });
      this.#child.once('close', (code, signal) => { this.#fail(`ended with ${signal ?? code}`); resolve(); });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** The next line. @throws MeshnetError INTERNAL when the program ends first or writes no JSON, DEADLINE_EXCEEDED */
  async next<T>({ timeoutMs, signal }: AskOptions): Promise<T> {
    signal?.throwIfAborted();
    const line = this.#lines.shift() ?? await this.#wait(timeoutMs, signal);
    try {
      return JSON.parse(line) as T;
    } catch (err) {
      throw new MeshnetError('INTERNAL', `${this.#command} wrote no JSON: ${line.slice(0, 200)}`, { cause: err });
    }
  }

  async ask<T>(line: string, options: AskOptions): Promise<T> {
    // A question that nobody waits for would leave its answer to the next one.
    options.signal?.throwIfAborted();
    this.#child.stdin?.write(`${line}\n`);
    return await this.next<T>(options);
  }

  /** Ends it, by force when it does not go by itself. */
  async stop(): Promise<void> {
    this.#child.stdin?.end();
    const timer = setTimeout(() => { this.#child.kill('SIGKILL'); }, LEAVE_MS);
    await this.#closed;
    clearTimeout(timer);
  }

  #take(line: string): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (waiter === undefined) {
      this.#lines.push(line);
    } else {
      waiter.resolve(line);
    }
  }

  #fail(what: string): void {
    this.#failure ??= new MeshnetError('INTERNAL', `${this.#command} ${what}${this.#complaint === '' ? '' : `\n${this.#complaint}`}`);
    this.#waiter?.reject(this.#failure);
    this.#waiter = undefined;
  }

  async #wait(timeoutMs: number, signal?: AbortSignal): Promise<string> {
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
    const limit = AbortSignal.timeout(timeoutMs);
    const stopped = signal === undefined ? limit : AbortSignal.any([signal, limit]);
    const give = (): void => {
      this.#child.kill('SIGKILL');
      this.#waiter?.reject(limit.aborted
        ? new MeshnetError('DEADLINE_EXCEEDED', `${this.#command} gave no answer within ${timeoutMs} ms`, { details: { timeoutMs } })
        : stopped.reason as Error);
      this.#waiter = undefined;
    };
    stopped.addEventListener('abort', give, { once: true });
    try {
      return await new Promise((resolve, reject) => { this.#waiter = { resolve, reject }; });
    } finally {
      stopped.removeEventListener('abort', give);
    }
  }
}
