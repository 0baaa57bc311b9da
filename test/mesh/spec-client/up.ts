/** A node in a process of its own: `meshnet up --json`, followed by the events that it prints. */
import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const PROGRAM = join(import.meta.dirname, '../../../bin/meshnet.js');
const STOP_MS = 20_000;
const KEEP_BYTES = 8192;

export type NodeEvent = Record<string, unknown> & { event: string };

export class UpProcess {
  readonly #child: ChildProcess;
  readonly #closed: Promise<void>;
  readonly #events: NodeEvent[] = [];
  #ended = false;
  #wake: () => void = () => {};
  #stderr = '';

  constructor(args: string[]) {
    this.#child = spawn(process.execPath, [PROGRAM, 'up', '--json', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#stderr = (this.#stderr + text).slice(-KEEP_BYTES);
    });
    if (this.#child.stdout !== null) {
      createInterface({ input: this.#child.stdout }).on('line', (line) => {
        this.#events.push(JSON.parse(line) as NodeEvent);
        this.#wake();
      });
    }
    this.#closed = new Promise((resolve) => {
      this.#child.once('close', () => {
        this.#ended = true;
        this.#wake();
        resolve();
      });
    });
  }

  /** The first event that is wanted, printed already or still to come. */
  async event(isWanted: (event: NodeEvent) => boolean, signal: AbortSignal): Promise<NodeEvent> {
    for (;;) {
      const found = this.#events.find(isWanted);
      if (found !== undefined) {
        return found;
      }
      if (this.#ended || signal.aborted) {
        throw new Error(`the node ${this.#ended ? 'ended early' : 'is too slow'}: ${this.#stderr}`);
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }

  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_MS);
    this.#child.kill('SIGTERM');
    await this.#closed;
    clearTimeout(timer);
  }
}
