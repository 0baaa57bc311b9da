import { execFile } from 'node:child_process';
import { mkdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

export const run = promisify(execFile);

const BUILD = path.join(import.meta.dirname, '..', '..', 'native-worker', 'build');
export const BIN = path.join(BUILD, 'bin');
export const MODELS = path.join(BUILD, 'models');
const BUILD_OUTPUT_BYTES = 64 * 1024 * 1024;
/** From nothing, on a small machine that does something else besides. */
const BUILD_MS = 3_600_000;
/** Of gigabytes, on a slow disk. */
const GENERATE_MS = 1_200_000;
const PIN_MS = 10_000;

/** A command and its arguments on one core or several. */
export function pinned(cores: number | readonly number[], command: readonly string[]): [string, string[]] {
  return ['taskset', ['-c', [cores].flat().join(','), ...command]];
}

/** Pins a running process with all its threads. */
export async function pin(pid: number, core: number): Promise<void> {
  await run('taskset', ['-a', '-cp', String(core), String(pid)], { timeout: PIN_MS });
}

/** The path of a generated model; written when it is missing or older than its generator. */
export async function generatedModel(options: Readonly<Record<string, string | number>>): Promise<string> {
  const generator = path.join(BIN, 'meshnet-testmodel');
  const parts = Object.entries(options);
  const file = path.join(MODELS, `${parts.map(([name, value]) => `${name}-${value}`).join('_')}.gguf`);
  if (await writtenAt(file) < await writtenAt(generator)) {
    await mkdir(MODELS, { recursive: true });
    const part = `${file}.${process.pid}.part`;
    const args = ['--out', part, ...parts.flatMap(([name, value]) => [`--${name}`, String(value)])];
    try {
      await run(generator, args, { timeout: GENERATE_MS });
      await rename(part, file);
    } finally {
      await rm(part, { force: true });
    }
  }
  return file;
}

async function writtenAt(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.mtimeMs ?? 0;
}

/** A program of the unpatched tree; seconds when it is built already. */
export async function stockProgram(name: string): Promise<string> {
  const args = [path.join(BUILD, '..', 'build.sh'), '--stock', '--target', name];
  await run('bash', args, { maxBuffer: BUILD_OUTPUT_BYTES, timeout: BUILD_MS });
  return path.join(BUILD, 'stock', 'bin', name);
}

/** What a process holds, its share of shared pages included. */
export async function pssMiB(pid: number): Promise<number> {
  const kib = /^Pss:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1];
  return Math.round(Number(kib ?? Number.NaN) / 1024);
}
