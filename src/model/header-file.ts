/**
 * A model's header without its weights. The text process of a gateway needs the vocabulary alone, but llama.cpp refuses
 * tensors beyond the end of a file: so the header is stored as a sparse file of the full length.
 */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { equals } from 'uint8arrays/equals';
import { toString as bytesToString } from 'uint8arrays/to-string';
import type { Manifest } from '../domain/manifest.ts';
import { MeshnetError } from '../errors.ts';
import { writeAtomically } from './atomic-file.ts';
import { assertSameShape, type IdentifiedModel } from './digest.ts';
import { corruptModel } from './gguf-cursor.ts';
import { openModelFile, readGgufFile } from './gguf.ts';

/**
 * The header bytes of a model file, checked.
 *
 * @throws {MeshnetError} DIGEST_MISMATCH, MODEL_CORRUPT, SOURCE_UNAVAILABLE
 */
export async function readHeader(path: string, manifest: Manifest): Promise<Buffer> {
  const handle = await openModelFile(path);
  try {
    const header = Buffer.alloc(manifest.headerBytes);
    for (let done = 0; done < header.length;) {
      const { bytesRead } = await handle.read(header, done, header.length - done, done);
      if (bytesRead === 0) {
        throw corruptModel('header', 'is cut short', { path, offset: done });
      }
      done += bytesRead;
    }
    assertHeaderDigest(header, manifest);
    return header;
  } finally {
    await handle.close();
  }
}

/** @throws {MeshnetError} DIGEST_MISMATCH */
function assertHeaderDigest(header: Uint8Array, manifest: Manifest): void {
  if (!equals(createHash('sha256').update(header).digest(), manifest.headerSha256)) {
    throw new MeshnetError('DIGEST_MISMATCH', 'the header is not the one of the manifest', {
      details: { bytes: header.length, expectedBytes: manifest.headerBytes },
    });
  }
}

/**
 * Stores a header that a peer sent, after checking it against the manifest and as a GGUF header.
 *
 * @returns the path of a sparse file that has the model's full length
 * @throws {MeshnetError} DIGEST_MISMATCH, MODEL_CORRUPT, DISK_FULL, FILE_INVALID
 */
export async function writeHeaderFile(
  directory: string,
  header: Uint8Array,
  { manifest, digest }: Pick<IdentifiedModel, 'manifest' | 'digest'>,
): Promise<string> {
  assertHeaderDigest(header, manifest);
  const path = headerFilePath(directory, digest);
  await writeAtomically(path, 0o644, async (handle, temporaryPath) => {
    await handle.writeFile(header);
    await handle.truncate(manifest.fileBytes);
    assertSameShape(await readGgufFile(temporaryPath), manifest);
  });
  return path;
}

/** The stored header of a model, or undefined when there is none that is whole. */
export async function findHeaderFile(
  directory: string,
  { manifest, digest }: Pick<IdentifiedModel, 'manifest' | 'digest'>,
): Promise<string | undefined> {
  const path = headerFilePath(directory, digest);
  try {
    if ((await stat(path)).size !== manifest.fileBytes) {
      return undefined;
    }
    await readHeader(path, manifest);
    return path;
  } catch {
    return undefined;
  }
}

function headerFilePath(directory: string, digest: Uint8Array): string {
  return join(directory, `${bytesToString(digest, 'hex')}.gguf`);
}
