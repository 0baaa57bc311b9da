import { mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MeshnetError } from '../errors.ts';

/** sun_path of AF_UNIX, less its final zero. */
const MAX_SOCKET_PATH_BYTES = 107;
const PREFIX = 'meshnet-';
/** What mkdtemp adds, and the longest name that is put into such a folder. */
const SUFFIX_BYTES = 'XXXXXX/token'.length;

/**
 * A new folder for sockets that only this user can enter, inside `runtimeDir`, or in the temporary folder when a socket
 * path there would be too long.
 *
 * @throws {MeshnetError} CONFIG_INVALID
 */
export async function makeSocketFolder(runtimeDir: string): Promise<string> {
  await mkdir(runtimeDir, { recursive: true, mode: 0o700 });
  for (const parent of [runtimeDir, tmpdir(), '/tmp']) {
    const prefix = join(parent, PREFIX);
    if (Buffer.byteLength(prefix) + SUFFIX_BYTES <= MAX_SOCKET_PATH_BYTES) {
      // mkdtemp makes it 0700.
      return mkdtemp(prefix);
    }
  }
  throw new MeshnetError('CONFIG_INVALID', `no folder is short enough for a socket; ${runtimeDir} is too long`, {
    details: { runtimeDir, maxBytes: MAX_SOCKET_PATH_BYTES },
  });
}
