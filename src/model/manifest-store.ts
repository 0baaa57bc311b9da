import { createHash } from 'node:crypto';
import { readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { equals } from 'uint8arrays/equals';
import { fromString as bytesFromString } from 'uint8arrays/from-string';
import { toString as bytesToString } from 'uint8arrays/to-string';
import { LIMITS } from '../domain/limits.ts';
import { MeshnetError } from '../errors.ts';
import { writeAtomically } from './atomic-file.ts';
import { digestModel, identify, type DigestOptions, type IdentifiedModel } from './digest.ts';
import { readHeader } from './header-file.ts';

/**
 * Manifests on disk: one file each, named by its digest, and for every model file that was digested here a small record
 * that leads to its manifest as long as the file is the same.
 */
export class ManifestStore {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /**
   * The manifest of a whole file. Reads the whole file once, and only the header again while size, time and inode stay.
   *
   * @throws {MeshnetError} MODEL_CORRUPT, SOURCE_UNAVAILABLE, DISK_FULL, FILE_INVALID, CANCELLED
   */
  async ofFile(path: string, options: DigestOptions): Promise<IdentifiedModel> {
    const record = await this.#recordPath(path);
    const known = await this.#followRecord(record);
    if (known !== undefined && await hasHeader(path, known)) {
      return known;
    }
    const model = await digestModel(path, options);
    if (record === await this.#recordPath(path)) {
      await this.remember(path, model);
    }
    return model;
  }

  /**
   * Stores the manifest of a file that has just been digested.
   *
   * @throws {MeshnetError} SOURCE_UNAVAILABLE, DISK_FULL, FILE_INVALID
   */
  async remember(path: string, model: IdentifiedModel): Promise<void> {
    await this.put(model.manifestBytes);
    const record = await this.#recordPath(path);
    await writeAtomically(record, 0o600, (handle) => handle.writeFile(bytesToString(model.digest, 'hex')));
  }

  /** The stored manifest of this digest; undefined when there is none or it is damaged. */
  async get(digest: Uint8Array): Promise<IdentifiedModel | undefined> {
    try {
      const model = identify(await readBounded(this.pathOf(digest)));
      return equals(model.digest, digest) ? model : undefined;
    } catch {
      return undefined;
    }
  }

  /**
   * Stores canonical bytes under their digest.
   *
   * @throws {MeshnetError} as `decodeManifest`; DISK_FULL, FILE_INVALID
   */
  async put(manifestBytes: Uint8Array): Promise<IdentifiedModel> {
    const model = identify(manifestBytes);
    await writeAtomically(this.pathOf(model.digest), 0o644, (handle) => handle.writeFile(manifestBytes));
    return model;
  }

  pathOf(digest: Uint8Array): string {
    return join(this.#directory, `${bytesToString(digest, 'hex')}.manifest`);
  }

  /** Another file, or the same one after a change, has another record. */
  async #recordPath(path: string): Promise<string> {
    try {
      const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true });
      const key = [await realpath(path), dev, ino, size, mtimeNs].join('\0');
      return join(this.#directory, 'files', createHash('sha256').update(key).digest('hex'));
    } catch (cause) {
      throw new MeshnetError('SOURCE_UNAVAILABLE', 'the model file cannot be opened', { cause, details: { path } });
    }
  }

  async #followRecord(record: string): Promise<IdentifiedModel | undefined> {
    try {
      const digest = await readFile(record, 'utf8');
      return /^[0-9a-f]{64}$/.test(digest) ? await this.get(bytesFromString(digest, 'hex')) : undefined;
    } catch {
      return undefined;
    }
  }
}

/**
 * The manifest in a file that a person names.
 *
 * @throws {MeshnetError} FILE_INVALID when it cannot be read; as `decodeManifest`
 */
export async function readManifestFile(path: string): Promise<IdentifiedModel> {
  let bytes: Uint8Array;
  try {
    bytes = await readBounded(path);
  } catch (cause) {
    throw new MeshnetError('FILE_INVALID', 'the manifest cannot be read', { cause, details: { path } });
  }
  return identify(bytes);
}

async function readBounded(path: string): Promise<Uint8Array> {
  const { size } = await stat(path);
  if (size > LIMITS.manifestBytes) {
    throw new MeshnetError('LIMIT_EXCEEDED', 'the manifest is too long', {
      details: { path, size, limit: LIMITS.manifestBytes },
    });
  }
  // Plain bytes, as those that come from a peer.
  return new Uint8Array(await readFile(path));
}

async function hasHeader(path: string, { manifest }: IdentifiedModel): Promise<boolean> {
  try {
    await readHeader(path, manifest);
    return true;
  } catch {
    return false;
  }
}
