import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import path from 'node:path';
import { loadConfig } from '../../../src/config.ts';
import { configuredModels } from '../../../src/model/configured.ts';
import { BIN } from './worker-route.ts';

/** Generated and fetched models are kept beside the build: the same options give the same bytes. */
const CACHE = path.join(BIN, '..', 'test-cache');

/** A small model with random weights. */
export async function testModel(options: readonly string[]): Promise<string> {
  const name = options.join('').replaceAll(/[^\w-]/g, '').replaceAll('--', '-');
  const file = path.join(CACHE, `generated${name}.gguf`);
  if (!existsSync(file)) {
    mkdirSync(CACHE, { recursive: true });
    execFileSync(path.join(BIN, 'meshnet-testmodel'), ['--out', `${file}.${process.pid}`, ...options]);
    renameSync(`${file}.${process.pid}`, file);
  }
  return file;
}

/** SmolLM2-135M-Instruct, from its package. */
export async function smollm2(): Promise<string> {
  const models = configuredModels(loadConfig({ cacheDir: CACHE }, undefined, {}));
  return (await models.resolve('smollm2-135m-instruct', { signal: AbortSignal.timeout(240_000) })).path;
}
