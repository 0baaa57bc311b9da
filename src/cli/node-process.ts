import { spawn, type ChildProcess } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { MeshnetError } from '../errors.ts';
import type { NodeEvent } from '../node.ts';
import { givenUp } from './output.ts';

const PROGRAM = path.join(import.meta.dirname, '..', '..', 'bin', 'meshnet.js');
/**
 * Of Node.js, for nodes that are started here or as a command (the first line of `bin/meshnet.js`). Left alone, V8 lets its
 * young generation grow to 128 MiB and its old one to twice of what lives, on a machine whose memory is for weights.
 * Collecting takes 0.6 % of a busy gateway's time with these, 0.4 % without.
 */
export const NODE_FLAGS: readonly string[] = Object.freeze(['--max-semi-space-size=2', '--heap-growing-percent=30']);
/** From SIGTERM to SIGKILL. */
const STOP_MS = 20_000;
const STDERR_BYTES = 8192;

/** A node in a process of its own, started by `meshnet up --json` and followed by the events it prints. Ends with us. */
export class NodeProcess {
  readonly exited: Promise<void>;
  readonly #child: ChildProcess;
  readonly #events: NodeEvent[] = [];
  readonly #waiting = new Set<() => void>();
  #stderr = '';

  /** `launcher`: a command, with its arguments, that becomes the node: `nice -n 5`, or one that enters a namespace. */
  constructor(args: readonly string[], program: string = PROGRAM, launcher: readonly string[] = []) {
    const [command, ...rest] = [...launcher, process.execPath];
    this.#child = spawn(command, [...rest, ...NODE_FLAGS, program, 'up', '--json', '--until-eof', ...args], { stdio: 'pipe' });
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-STDERR_BYTES);
    });
    const lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    lines.on('line', (line) => { this.#take(line); });
    this.#child.once('error', (err) => { this.#stderr += `${err.message}\n`; });
    this.exited = new Promise((resolve) => {
      this.#child.once('close', () => {
        resolve();
        this.#wake();
      });
    });
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  get stderr(): string {
    return this.#stderr;
  }

  /** REQUIRES: `waitFor('listening')` has resolved. */
  get listening(): Extract<NodeEvent, { event: 'listening' }> {
    const found = this.#events.find((event) => event.event === 'listening');
    if (found === undefined) {
      throw new MeshnetError('INTERNAL', 'a node was asked where it listens before it did');
    }
    return found;
  }

  /** @throws {MeshnetError} NODE_NOT_RUNNING when it ends before that; DEADLINE_EXCEEDED, CANCELLED */
  async waitFor(what: 'listening' | 'serving', signal: AbortSignal): Promise<void> {
    while (!this.#events.some((event) => event.event === what || (event.event === 'shard' && event.state === what))) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        throw new MeshnetError('NODE_NOT_RUNNING', `a node ended early: ${this.#stderr.trim()}`, {
          details: { exitCode: this.#child.exitCode },
        });
      }
      if (signal.aborted) {
        throw givenUp(signal, `a node is not ${what} in time: ${this.#stderr.trim()}`);
      }
      await this.#nextEvent(signal);
    }
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill('SIGTERM');
      const timer = setTimeout(() => { this.#child.kill('SIGKILL'); }, STOP_MS);
      await this.exited;
      clearTimeout(timer);
    }
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** A line that is no event is somebody's last words, as those on stderr. */
  #take(line: string): void {
    try {
      this.#events.push(JSON.parse(line) as NodeEvent);
    } catch {
      this.#stderr += `${line}\n`;
    }
    this.#wake();
  }

  #nextEvent(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        signal.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      signal.addEventListener('abort', done);
    });
  }

  #wake(): void {
    for (const done of this.#waiting) {
      done();
    }
  }
}
