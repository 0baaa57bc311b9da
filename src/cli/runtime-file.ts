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

/** Unless another node has taken over the directory. */
export function removeRuntimeFile(dataDir: string, pid: number): void {
  try {
    if (schema.parse(JSON.parse(readFileSync(fileIn(dataDir), 'utf8'))).pid !== pid) {
      return;
    }
  } catch {
    // Unreadable: of no use to anybody.
  }
  rmSync(fileIn(dataDir), { force: true });
}

/** @throws {MeshnetError} NODE_NOT_RUNNING */
export function readRuntimeFile(dataDir: string): RuntimeFile {
  const found = contentOf(dataDir);
  if (found === undefined || !isRunning(found.pid)) {
    throw new MeshnetError('NODE_NOT_RUNNING', `no node runs from ${dataDir}`);
  }
  return found;
}

/** Undefined when there is none, or none that this version can read. */
function contentOf(dataDir: string): RuntimeFile | undefined {
  try {
    return schema.parse(JSON.parse(readFileSync(fileIn(dataDir), 'utf8')));
  } catch {
    return undefined;
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (err) {
    // Somebody else's, but there.
    return (err as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Base URL of the local node's API: the flag, or what the running node wrote. */
export function apiOf(flag: string | undefined, dataDir: string): string {
  const api = flag ?? readRuntimeFile(dataDir).api;
  if (api === undefined) {
    throw new MeshnetError('NODE_NOT_RUNNING', `the node that runs from ${dataDir} has no API`);
  }
  return api;
}
