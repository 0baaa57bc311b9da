/** The native build's programs, and the models that it generates for tests. */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

const native = join(import.meta.dirname, '../../../native-worker');
const run = promisify(execFile);
/** A model with all its rows of logits: more than the default of Node. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export const modelFolder = join(native, 'build/models');

export function program(name: string, build: 'patched' | 'stock' = 'patched'): string {
  return join(native, build === 'stock' ? 'build/stock/bin' : 'build/bin', name);
}

/** With this in its environment the patched tree adds up attention as the unpatched one does. */
export const UPSTREAM_ATTENTION = { GGML_CPU_DISABLE_ATTENTION_GROUPS: '1' };

/** The program's output lines. Rejects when it exits with anything but 0, or takes longer than `timeoutMs`. */
export async function lines(file: string, args: string[], timeoutMs: number, env: NodeJS.ProcessEnv = {}): Promise<string[]> {
  const { stdout } = await run(file, args, { timeout: timeoutMs, maxBuffer: MAX_OUTPUT_BYTES, env: { ...process.env, ...env } });
  return stdout.trimEnd().split('\n');
}

/** Builds targets of the unpatched tree, which takes seconds when nothing changed. */
export async function buildStock(targets: string[], timeoutMs: number): Promise<void> {
  const args = [join(native, 'build.sh'), '--stock', ...targets.flatMap((target) => ['--target', target])];
  await run('bash', args, { timeout: timeoutMs, maxBuffer: MAX_OUTPUT_BYTES });
}

/** The path of a generated model; written when it is missing or older than its generator. */
export async function generatedModel(options: Record<string, string | number>): Promise<string> {
  const generator = program('meshnet-testmodel');
  const parts = Object.entries(options);
  const path = join(modelFolder, `${parts.map(([name, value]) => `${name}-${value}`).join('_')}.gguf`);
  if (!existsSync(path) || statSync(path).mtimeMs < statSync(generator).mtimeMs) {
    mkdirSync(modelFolder, { recursive: true });
    await lines(generator, ['--out', path, ...parts.flatMap(([name, value]) => [`--${name}`, String(value)])], 120_000);
  }
  return path;
}
