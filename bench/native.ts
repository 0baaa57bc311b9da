import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { promisify } from 'node:util';
import { MeshnetError } from '../src/errors.ts';

export const run = promisify(execFile);

const BUILD = path.join(import.meta.dirname, '..', 'native-worker', 'build');
export const BIN = path.join(BUILD, 'bin');
export const STOCK_BIN = path.join(BUILD, 'stock', 'bin');
const MODELS = path.join(BUILD, 'models');

/** A command and its arguments on one core. */
export function pinned(core: number, command: readonly string[]): [string, string[]] {
  return ['taskset', ['-c', String(core), ...command]];
}

/** Pins a running process with all its threads. */
export async function pin(pid: number, core: number): Promise<void> {
  await run('taskset', ['-a', '-cp', String(core), String(pid)]);
}

/** A generated model, made once. */
export async function generatedModel(name: string, args: readonly string[]): Promise<string> {
  const file = path.join(MODELS, name);
  if (!existsSync(file)) {
    await mkdir(MODELS, { recursive: true });
    await run(path.join(BIN, 'meshnet-testmodel'), [...args, '--out', file]);
  }
  return file;
}

/** A program that answers each line on its stdin by one line of JSON. */
export class LineProgram {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly #reader: Interface;

  constructor(command: string, args: readonly string[]) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#reader = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async next<T>(): Promise<T> {
    const { value, done } = await this.#lines.next();
    if (done === true) {
      throw new MeshnetError('INTERNAL', 'a benchmark program ended early');
    }
    return JSON.parse(value) as T;
  }

  async ask<T>(line: string): Promise<T> {
    this.#child.stdin?.write(`${line}\n`);
    return await this.next<T>();
  }

  async stop(): Promise<void> {
    this.#child.stdin?.end();
    await new Promise<void>((resolve) => {
      if (this.#child.exitCode !== null) {
        resolve();
      }
      this.#child.once('close', () => { resolve(); });
    });
  }
}
