import { open, readdir, stat } from 'node:fs/promises';
import path from 'node:path';

const READ_BYTES = 8 * 1024 * 1024;

/** Reads a file, or all files of a folder, once, so that loading them measures no disk. */
export async function intoPageCache(weights: string, signal: AbortSignal): Promise<void> {
  const files = (await stat(weights)).isDirectory()
    ? (await readdir(weights)).map((name) => path.join(weights, name))
    : [weights];
  const buffer = Buffer.allocUnsafe(READ_BYTES);
  for (const file of files) {
    const handle = await open(file);
    try {
      while ((await handle.read(buffer, 0, READ_BYTES)).bytesRead > 0) {
        signal.throwIfAborted();
      }
    } finally {
      await handle.close();
    }
  }
}
