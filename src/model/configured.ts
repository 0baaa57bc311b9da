import { dirname, join } from 'node:path';
import type { Config } from '../config.ts';
import { Models } from './models.ts';

/** The generator stands beside the worker. */
const GENERATOR = 'meshnet-testmodel';
const BUILT = join(import.meta.dirname, '..', '..', 'native-worker', 'build', 'bin');

/** Models as the configuration wants them. */
export function configuredModels({ cacheDir, models, worker }: Pick<Config, 'cacheDir' | 'models' | 'worker'>): Models {
  return new Models({
    cacheDirectory: cacheDir,
    catalogue: models.names,
    baseUrl: models.baseUrl,
    generator: join(worker.binary === undefined ? BUILT : dirname(worker.binary), GENERATOR),
    http: { allowLoopback: models.allowLoopback },
  });
}
