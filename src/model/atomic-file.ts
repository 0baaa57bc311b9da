import { randomBytes } from 'node:crypto';
import { mkdir, open, rename, rm, statfs, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { MeshnetError, toMeshnetError } from '../errors.ts';

/** Left free on the disk in any case. */
const SPARE_BYTES = 64 * 1024 * 1024;

/**
 * Gives `write` a new file and puts it at `path` when that returns. Until then nothing is there, and afterwards all of
 * it: a reader never sees half a file, and of two writers at once the last one wins.
 *
 * @throws {MeshnetError} DISK_FULL, FILE_INVALID, or what `write` throws
 */
export async function writeAtomically(
  path: string,
  mode: number,
  write: (handle: FileHandle, temporaryPath: string) => Promise<void>,
): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`);
  let handle: FileHandle | undefined;
  let isThere = false;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    handle = await open(temporary, 'wx', mode);
    isThere = true;
    await write(handle, temporary);
    await handle.sync();
    await handle.close();
    handle = undefined;
    await rename(temporary, path);
  } catch (err) {
    await handle?.close();
    if (isThere) {
      await rm(temporary, { force: true });
    }
    throw fileError(err, path);
  }
}

/** DISK_FULL or FILE_INVALID for an error of the file system; a typed error stays as it is, any other is a bug. */
export function fileError(err: unknown, path: string): MeshnetError {
  const { code, syscall } = err as NodeJS.ErrnoException;
  if (err instanceof MeshnetError || syscall === undefined) {
    return toMeshnetError(err);
  }
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new MeshnetError('DISK_FULL', undefined, { cause: err, details: { path } });
  }
  return new MeshnetError('FILE_INVALID', undefined, { cause: err, details: { path, reason: code } });
}

/**
 * Before a long download, so that it does not fail at its end.
 *
 * @throws {MeshnetError} DISK_FULL with the bytes to free
 */
export async function assertSpace(directory: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  const free = bavail * bsize;
  if (free < bytes + SPARE_BYTES) {
    throw new MeshnetError('DISK_FULL', undefined, {
      details: { path: directory, needed: bytes, free, missing: bytes + SPARE_BYTES - free },
    });
  }
}
