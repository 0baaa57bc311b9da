import path from 'node:path';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { NodeMetrics } from '../metrics/node-metrics.ts';
import type { Models } from '../model/models.ts';
import type { Host } from '../net/host.ts';
import type { Identity } from '../net/identity.ts';
import type { Tell } from './events.ts';
import type { StartedParts } from './parts.ts';

/** What every part of a running node is made from. */
export interface NodeContext {
  readonly config: Config;
  readonly log: Logger;
  readonly metrics: NodeMetrics;
  readonly models: Models;
  readonly identity: Identity;
  readonly host: Host;
  readonly parts: StartedParts;
  readonly tell: Tell;
}

const BUILT_WORKER = path.join(import.meta.dirname, '..', '..', 'native-worker', 'build', 'bin', 'meshnet-worker');

/** The native program and the folder of its sockets. */
export function nativeOf({ dataDir, worker }: Config): { binary: string; runtimeDir: string } {
  return { binary: worker.binary ?? BUILT_WORKER, runtimeDir: path.join(dataDir, 'run') };
}
