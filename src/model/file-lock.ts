import { open, readFile, rm, stat, utimes } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { abortError, throwIfAborted } from './abort.ts';
import { fileError } from './atomic-file.ts';

const HEARTBEAT_MS = 5000;
const STALE_MS = 30_000;
const POLL_MS = 200;

export interface LockOptions {
  signal: AbortSignal;
  /** Called once when another process has it. */
  onWait: () => void;
}

/**
 * Runs `work` while no other process does so under the same path. A lock whose holder is dead, or has given no sign of
 * life for half a minute, is taken over.
 *
 * @throws {MeshnetError} CANCELLED, FILE_INVALID, or what `work` throws
 */
export async function withFileLock<T>(path: string, { signal, onWait }: LockOptions, work: () => Promise<T>): Promise<T> {
  let waited = false;
  while (!await tryLock(path)) {
    throwIfAborted(signal);
    if (await isAbandoned(path)) {
      await rm(path, { force: true });
      continue;
    }
    if (!waited) {
      waited = true;
      onWait();
    }
    await delay(POLL_MS, undefined, { signal }).catch(() => { throw abortError(signal); });
  }
  const heartbeat = setInterval(() => {
    const now = new Date();
    // Gone when somebody took it over: then there is nothing to keep alive.
    utimes(path, now, now).catch(() => clearInterval(heartbeat));
  }, HEARTBEAT_MS);
  try {
    return await work();
  } finally {
    clearInterval(heartbeat);
    await rm(path, { force: true });
  }
}

async function tryLock(path: string): Promise<boolean> {
  try {
    const handle = await open(path, 'wx', 0o600);
    await handle.writeFile(String(process.pid));
    await handle.close();
    return true;
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === 'EEXIST') {
      return false;
    }
    throw fileError(err, path);
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  try {
    const [{ mtimeMs }, text] = await Promise.all([stat(path), readFile(path, 'utf8')]);
    // An empty one has just been made.
    return Date.now() - mtimeMs > STALE_MS || (/^\d+$/.test(text) && !isAlive(Number(text)));
  } catch {
    return false;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (err) {
    return (err as NodeJS.ErrnoException).code === 'EPERM';
  }
}
