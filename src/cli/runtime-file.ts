import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { MeshnetError } from '../errors.ts';

const schema = z.object({ pid: z.number(), api: z.string().optional(), peer_id: z.string() });

/** What a running node leaves for `status` and `chat` in its data directory. */
export type RuntimeFile = z.infer<typeof schema>;

const fileIn = (dataDir: string): string => path.join(dataDir, 'node.json');

export function writeRuntimeFile(dataDir: string, content: RuntimeFile): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  writeFileSync(fileIn(dataDir), JSON.stringify(content), { mode: 0o600 });
}

export function removeRuntimeFile(dataDir: string): void {
  rmSync(fileIn(dataDir), { force: true });
}

/** @throws {MeshnetError} NODE_NOT_RUNNING */
export function readRuntimeFile(dataDir: string): RuntimeFile {
  let found: RuntimeFile;
  try {
    found = schema.parse(JSON.parse(readFileSync(fileIn(dataDir), 'utf8')));
    process.kill(found.pid, 0);
  } catch (cause) {
    throw new MeshnetError('NODE_NOT_RUNNING', `no node runs from ${dataDir}`, { cause, details: { dataDir } });
  }
  return found;
}

/** Base URL of the local node's API: the flag, or what the running node wrote. */
export function apiOf(flag: string | undefined, dataDir: string): string {
  const api = flag ?? readRuntimeFile(dataDir).api;
  if (api === undefined) {
    throw new MeshnetError('NODE_NOT_RUNNING', 'the node that runs has no API', { details: { dataDir } });
  }
  return api;
}
