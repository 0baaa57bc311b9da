import { createHash } from 'node:crypto';
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { equals } from 'uint8arrays/equals';
import { toString as bytesToString } from 'uint8arrays/to-string';
import type { LayerRange } from '../domain/shard.ts';
import { MeshnetError, isMeshnetError } from '../errors.ts';
import { fileError } from './atomic-file.ts';
import { CATALOGUE, type Catalogue, type CatalogueEntry } from './catalogue.ts';
import { digestModel, identify, verifyRange, type IdentifiedModel } from './digest.ts';
import { withFileLock } from './file-lock.ts';
import { findHeaderFile, readHeader, writeHeaderFile } from './header-file.ts';
import { ManifestStore, readManifestFile } from './manifest-store.ts';
import { Progress, type ProgressEvent } from './progress.ts';
import { generate } from './source-generated.ts';
import { fetchByHttp, type HttpInit } from './source-http.ts';
import { fetchFromPackage, type PackageInit } from './source-package.ts';
import { parseSource, safeFileName, sourceLabel, type FetchJob, type FetchOptions, type Source } from './source.ts';

export interface ModelsInit {
  /** Downloads, manifests and headers are kept below it. */
  cacheDirectory: string;
  /** Names in addition to the built-in ones, or in place of them. @default {} */
  catalogue?: Catalogue;
  /** What `base:FILE` is below. @default none */
  baseUrl?: string | undefined;
  /** Path of the generator of test models. @default none: `test` cannot be had */
  generator?: string | undefined;
  http?: HttpInit;
  package?: PackageInit;
}

export interface ResolveOptions {
  signal: AbortSignal;
  onProgress?: ((event: ProgressEvent) => void) | undefined;
  /** The file is a part of a model: this one, of which it has the header and `range`. */
  manifestPath?: string | undefined;
  /** Which layers of a partial file are needed. @default all */
  range?: LayerRange | undefined;
}

export interface OpenModel extends IdentifiedModel {
  /** For people. */
  readonly name: string;
  readonly path: string;
}

/** Models by name, path or source, on this machine's disk and checked. */
export class Models {
  readonly #init: ModelsInit;
  readonly #catalogue: Catalogue;
  readonly #manifests: ManifestStore;
  readonly #headers: string;

  constructor(init: ModelsInit) {
    this.#init = init;
    this.#catalogue = { ...CATALOGUE, ...init.catalogue };
    this.#manifests = new ManifestStore(join(init.cacheDirectory, 'manifests'));
    this.#headers = join(init.cacheDirectory, 'headers');
  }

  /** Names that `resolve` knows. */
  names(): string[] {
    return Object.keys(this.#catalogue);
  }

  /** The model digest that configuration gives to a name, lower-case hex. */
  digestOf(name: string): string | undefined {
    return Object.hasOwn(this.#catalogue, name) ? this.#catalogue[name]?.digest : undefined;
  }

  /**
   * A name of the catalogue, a path, or a source as `parseSource` reads it. Fetches what is not here yet.
   *
   * @throws {MeshnetError} MODEL_UNKNOWN, SOURCE_UNAVAILABLE, DOWNLOAD_INCOMPLETE, DIGEST_MISMATCH, MODEL_CORRUPT,
   * DISK_FULL, FILE_INVALID, CONFIG_INVALID, WORKER_BINARY_MISSING, CANCELLED
   */
  async resolve(nameOrSource: string, options: ResolveOptions): Promise<OpenModel> {
    const { name, entry, source } = this.#lookup(nameOrSource);
    const progress = new Progress(options.onProgress ?? (() => {}));
    const path = source.kind === 'path' ? resolve(source.path) : await this.#cachePath(source);
    let model: IdentifiedModel;
    if (options.manifestPath !== undefined) {
      model = await this.#partial(path, options.manifestPath, options, progress);
    } else if (source.kind === 'path') {
      model = await this.#whole(path, entry, options, progress);
    } else {
      model = await this.#obtain(source, entry, { path, options, progress });
    }
    progress.finish(model.manifest.fileBytes);
    return { ...model, name, path };
  }

  /** Where the manifest of a resolved model lies, for `--manifest` beside a part of its file. */
  manifestPath(digest: Uint8Array): string {
    return this.#manifests.pathOf(digest);
  }

  /** A stored manifest. */
  async manifest(digest: Uint8Array): Promise<IdentifiedModel | undefined> {
    return this.#manifests.get(digest);
  }

  /**
   * Stores a manifest that a peer sent.
   *
   * @throws {MeshnetError} DIGEST_MISMATCH when it is another model's; MALFORMED, LIMIT_EXCEEDED, VERSION_UNSUPPORTED
   */
  async keepManifest(digest: Uint8Array, manifestBytes: Uint8Array): Promise<IdentifiedModel> {
    const model = identify(manifestBytes);
    if (!equals(model.digest, digest)) {
      throw new MeshnetError('DIGEST_MISMATCH', 'the manifest belongs to another model', {
        details: { expected: bytesToString(digest, 'hex'), found: bytesToString(model.digest, 'hex') },
      });
    }
    return this.#manifests.put(manifestBytes);
  }

  /** The stored header of a model as a sparse file of its full length. */
  async headerFile(model: IdentifiedModel): Promise<string | undefined> {
    return findHeaderFile(this.#headers, model);
  }

  /**
   * Stores a header that a peer sent; returns the path of the sparse file.
   *
   * @throws {MeshnetError} DIGEST_MISMATCH, MODEL_CORRUPT, DISK_FULL, FILE_INVALID
   */
  async keepHeader(model: IdentifiedModel, header: Uint8Array): Promise<string> {
    return writeHeaderFile(this.#headers, header, model);
  }

  /**
   * The header bytes of an open model, to send them to a peer.
   *
   * @throws {MeshnetError} DIGEST_MISMATCH, MODEL_CORRUPT, SOURCE_UNAVAILABLE
   */
  async readHeader(model: OpenModel): Promise<Uint8Array> {
    return readHeader(model.path, model.manifest);
  }

  #lookup(nameOrSource: string): { name: string; entry: CatalogueEntry; source: Source } {
    const { baseUrl } = this.#init;
    const entry = Object.hasOwn(this.#catalogue, nameOrSource) ? this.#catalogue[nameOrSource] : undefined;
    if (entry !== undefined) {
      return { name: nameOrSource, entry, source: parseSource(entry.source, baseUrl) };
    }
    if (/^[^/\\:\0]+$/.test(nameOrSource) && !/\.gguf$/i.test(nameOrSource)) {
      throw new MeshnetError('MODEL_UNKNOWN', `no model is called "${nameOrSource}"`, { details: { known: this.names() } });
    }
    const source = parseSource(nameOrSource, baseUrl);
    return { name: basename(safeFileName(source), '.gguf'), entry: { source: nameOrSource }, source };
  }

  /** One file per source; the name of the source never leads out of the cache. */
  async #cachePath(source: Source): Promise<string> {
    const version = source.kind === 'generated' ? await fileVersion(this.#init.generator) : '';
    const key = createHash('sha256').update(`${sourceKey(source)}\0${version}`).digest('hex').slice(0, 16);
    return join(this.#init.cacheDirectory, 'models', `${key}-${safeFileName(source)}`);
  }

  async #partial(path: string, manifestPath: string, options: ResolveOptions, progress: Progress): Promise<IdentifiedModel> {
    const model = await readManifestFile(manifestPath);
    const range = options.range ?? { first: 0, last: model.manifest.nLayer };
    await verifyRange(path, model.manifest, range, { signal: options.signal, onProgress: verifying(progress) });
    return model;
  }

  async #whole(path: string, entry: CatalogueEntry, options: ResolveOptions, progress: Progress): Promise<IdentifiedModel> {
    try {
      const model = await this.#manifests.ofFile(path, { signal: options.signal, onProgress: verifying(progress) });
      assertExpected(model, entry, path);
      return model;
    } catch (err) {
      throw isMeshnetError(err, 'MODEL_CORRUPT')
        ? new MeshnetError('MODEL_CORRUPT', `${path}: ${err.message}`, { cause: err, details: { ...err.details, path } })
        : err;
    }
  }

  async #obtain(
    source: Source,
    entry: CatalogueEntry,
    { path, options, progress }: { path: string; options: ResolveOptions; progress: Progress },
  ): Promise<IdentifiedModel> {
    try {
      await mkdir(join(this.#init.cacheDirectory, 'models'), { recursive: true, mode: 0o700 });
    } catch (err) {
      throw fileError(err, this.#init.cacheDirectory);
    }
    const lock = { signal: options.signal, onWait: () => progress.notice({ kind: 'waiting' }) };
    return withFileLock(`${path}.lock`, lock, async () => {
      const cached = await this.#cached(path, entry, options, progress);
      return cached ?? this.#fetch(source, entry, { path, options, progress });
    });
  }

  /** What an earlier run left, if it is still right. */
  async #cached(
    path: string,
    entry: CatalogueEntry,
    options: ResolveOptions,
    progress: Progress,
  ): Promise<IdentifiedModel | undefined> {
    try {
      await stat(path);
    } catch {
      return undefined;
    }
    try {
      return await this.#whole(path, entry, options, progress);
    } catch (err) {
      if (!isMeshnetError(err, 'MODEL_CORRUPT') && !isMeshnetError(err, 'DIGEST_MISMATCH')) {
        throw err;
      }
      await rm(path, { force: true });
      return undefined;
    }
  }

  async #fetch(
    source: Source,
    entry: CatalogueEntry,
    { path, options, progress }: { path: string; options: ResolveOptions; progress: Progress },
  ): Promise<IdentifiedModel> {
    const part = `${path}.part`;
    progress.plan({ download: entry.bytes, verify: entry.bytes });
    await this.#run(source, { target: part, sha256: entry.sha256, bytes: entry.bytes }, {
      signal: options.signal,
      onProgress: (done, total) => progress.advance('download', done, total),
      onNotice: (notice) => progress.notice(notice),
    });
    try {
      const onProgress = (done: number, total: number): void => progress.advance('verify', done, total);
      const model = await digestModel(part, { signal: options.signal, onProgress });
      assertExpected(model, entry, sourceLabel(source));
      await rename(part, path);
      await this.#manifests.remember(path, model);
      return model;
    } catch (err) {
      if (isMeshnetError(err, 'MODEL_CORRUPT') || isMeshnetError(err, 'DIGEST_MISMATCH')) {
        // Resuming it would only give the same bytes again.
        await rm(part, { force: true });
      }
      throw fileError(err, path);
    }
  }

  async #run(source: Source, job: FetchJob, options: FetchOptions): Promise<void> {
    switch (source.kind) {
      case 'http': return fetchByHttp(source, job, options, this.#init.http);
      case 'package': return fetchFromPackage(source, job, options, this.#init.package);
      case 'generated': return generate(source, job, options, this.#init.generator);
      default: throw new MeshnetError('INTERNAL', 'a path is never fetched', { details: { path: source.path } });
    }
  }
}

function verifying(progress: Progress): (done: number, total: number) => void {
  return (done, total) => {
    progress.plan({ download: 0, verify: total });
    progress.advance('verify', done, total);
  };
}

/** @throws {MeshnetError} DIGEST_MISMATCH */
function assertExpected(model: IdentifiedModel, expected: CatalogueEntry, source: string): void {
  const found = {
    sha256: bytesToString(model.manifest.fileSha256, 'hex'),
    bytes: model.manifest.fileBytes,
    digest: bytesToString(model.digest, 'hex'),
  };
  for (const field of ['bytes', 'sha256', 'digest'] as const) {
    if (expected[field] !== undefined && expected[field] !== found[field]) {
      throw new MeshnetError('DIGEST_MISMATCH', 'the file is not the model of this name', {
        details: { source, field, found: found[field], expected: expected[field] },
      });
    }
  }
}

/** All of a source, query of a URL included. */
function sourceKey(source: Source): string {
  return source.kind === 'http' ? source.url : sourceLabel(source);
}

/** Another build of the generator may write other models. */
async function fileVersion(path: string | undefined): Promise<string> {
  try {
    const { size, mtimeMs } = await stat(path ?? '');
    return `${size} ${mtimeMs}`;
  } catch {
    return '';
  }
}
