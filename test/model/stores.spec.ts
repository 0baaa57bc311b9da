import assert from 'node:assert/strict';
import { appendFile, chmod, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeManifest } from '../../src/domain/manifest.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { digestModel, identify, type IdentifiedModel } from '../../src/model/digest.ts';
import { readGgufFile } from '../../src/model/gguf.ts';
import { findHeaderFile, readHeader, writeHeaderFile } from '../../src/model/header-file.ts';
import { ManifestStore, readManifestFile } from '../../src/model/manifest-store.ts';
import { buildGguf, smallModel } from './gguf-builder.ts';

const calm = (): AbortSignal => new AbortController().signal;

describe('model/manifest-store and model/header-file', () => {
  const built = buildGguf(smallModel());
  let dir = '';
  let path = '';
  let model: IdentifiedModel;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-store-'));
    path = join(dir, 'model.gguf');
    await writeFile(path, built.bytes);
    model = await digestModel(path, { signal: calm() });
  });

  afterEach(() => rm(dir, { recursive: true, force: true }));

  /** Bytes read for the manifest of the file. */
  async function readsOf(store: ManifestStore): Promise<number> {
    let read = 0;
    await store.ofFile(path, { signal: calm(), onProgress: (done) => { read = done; } });
    return read;
  }

  it('reads a file once, and again only when it has changed', async () => {
    const store = new ManifestStore(join(dir, 'manifests'));
    assert.equal(await readsOf(store), built.bytes.length);
    assert.equal(await readsOf(store), 0);
    assert.equal(await readsOf(new ManifestStore(join(dir, 'manifests'))), 0);
    await utimes(path, 1, 1);
    assert.equal(await readsOf(store), built.bytes.length);
    await appendFile(path, 'x');
    assert.equal(await readsOf(store), built.bytes.length + 1);
    await rename(path, `${path}.old`);
    await writeFile(path, built.bytes);
    assert.equal(await readsOf(store), built.bytes.length);
  });

  it('does not trust a record when the header is another one', async () => {
    const store = new ManifestStore(join(dir, 'manifests'));
    const { mtime, atime } = await stat(path);
    await utimes(path, atime, mtime);
    assert.equal(await readsOf(store), built.bytes.length);
    const other = buildGguf({ ...smallModel(), metadata: smallModel().metadata.toReversed() });
    await writeFile(path, other.bytes);
    await utimes(path, atime, mtime);
    assert.equal(await readsOf(store), other.bytes.length);
  });

  it('recovers from damaged files of its own', async () => {
    const folder = join(dir, 'manifests');
    const store = new ManifestStore(folder);
    await readsOf(store);
    await writeFile(store.pathOf(model.digest), 'garbage');
    assert.equal(await store.get(model.digest), undefined);
    assert.equal(await readsOf(store), built.bytes.length);
    const [record] = await readdir(join(folder, 'files'));
    await writeFile(join(folder, 'files', record ?? ''), '../../../etc/passwd');
    assert.equal(await readsOf(store), built.bytes.length);
    assert.deepEqual((await store.get(model.digest))?.manifest, model.manifest);
  });

  it('reads a manifest file that a person names, and refuses what is none', async () => {
    const file = join(dir, 'm.manifest');
    await writeFile(file, model.manifestBytes);
    assert.deepEqual((await readManifestFile(file)).digest, model.digest);
    await writeFile(file, 'not a manifest');
    await assert.rejects(readManifestFile(file), (err) => isMeshnetError(err, 'MALFORMED'));
    await assert.rejects(readManifestFile(join(dir, 'absent')), (err) => isMeshnetError(err, 'FILE_INVALID'));
  });

  it('stores a header as a sparse file of the full length that reads as the model', async () => {
    const header = await readHeader(path, model.manifest);
    assert.deepEqual(header, built.bytes.subarray(0, built.headerBytes));
    const stored = await writeHeaderFile(join(dir, 'headers'), header, model);
    const info = await stat(stored);
    assert.equal(info.size, built.bytes.length);
    assert.deepEqual((await readGgufFile(stored)).tensors, (await readGgufFile(path)).tensors);
    assert.equal(await findHeaderFile(join(dir, 'headers'), model), stored);
    assert.deepEqual(await readdir(join(dir, 'headers')), [stored.slice(stored.lastIndexOf('/') + 1)]);
  });

  it('refuses a header of another model, a cut one, and one that its manifest describes wrongly', async () => {
    const folder = join(dir, 'headers');
    const header = await readHeader(path, model.manifest);
    const wrong = Buffer.from(header);
    wrong[40] = (wrong[40] ?? 0) ^ 1;
    await assert.rejects(writeHeaderFile(folder, wrong, model), (err) => isMeshnetError(err, 'DIGEST_MISMATCH'));
    await assert.rejects(writeHeaderFile(folder, header.subarray(1), model), (err) => isMeshnetError(err, 'DIGEST_MISMATCH'));
    const liar = identify(encodeManifest({ ...model.manifest, nLayer: 5 }));
    await assert.rejects(writeHeaderFile(folder, header, liar), (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
    assert.deepEqual(await readdir(folder), []);
    assert.equal(await findHeaderFile(folder, model), undefined);
  });

  it('finds no header file that is damaged or of another length', async () => {
    const folder = join(dir, 'headers');
    const stored = await writeHeaderFile(folder, await readHeader(path, model.manifest), model);
    await appendFile(stored, 'x');
    assert.equal(await findHeaderFile(folder, model), undefined);
    await writeFile(stored, Buffer.alloc(built.bytes.length));
    assert.equal(await findHeaderFile(folder, model), undefined);
  });

  it('says so when it cannot write', async () => {
    const blocked = join(dir, 'blocked');
    await writeFile(blocked, '');
    await chmod(blocked, 0o400);
    await assert.rejects(new ManifestStore(join(blocked, 'x')).put(model.manifestBytes), (err) => isMeshnetError(err, 'FILE_INVALID'));
    assert.equal(await readFile(blocked, 'utf8'), '');
  });
});
