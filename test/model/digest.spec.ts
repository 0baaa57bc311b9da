import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, open, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { CHUNK_BYTES, encodeManifest, tensorsOfRange, type Manifest } from '../../src/domain/manifest.ts';
import { isMeshnetError } from '../../src/errors.ts';
import { digestModel, identify, verifyRange } from '../../src/model/digest.ts';
import { buildGguf, smallModel, u32, type Built } from './gguf-builder.ts';

/** A model with a tensor of several chunks, the last one short. */
function largeModel(): Built {
  const spec = smallModel();
  const rows = (2 * CHUNK_BYTES + 4096) / 4096;
  spec.metadata = spec.metadata.map(([key, value]) => key === 'llama.embedding_length' ? [key, u32(1024)] : [key, value]);
  spec.tensors = spec.tensors.map((tensor) => tensor.name === 'blk.2.attn_q.weight' ? { ...tensor, dims: [1024, rows] } : tensor);
  return buildGguf(spec);
}

const sha256 = (bytes: Uint8Array): Buffer => createHash('sha256').update(bytes).digest();
const calm = (): AbortSignal => new AbortController().signal;

describe('model/digest', () => {
  const built = largeModel();
  let dir = '';
  let path = '';
  let manifest: Manifest;

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'meshnet-digest-'));
    path = join(dir, 'model.gguf');
    await writeFile(path, built.bytes);
    ({ manifest } = await digestModel(path, { signal: calm() }));
  });

  afterEach(() => rm(dir, { recursive: true, force: true }));

  async function damage(offset: number): Promise<void> {
    const handle = await open(path, 'r+');
    await handle.write(Buffer.of((built.bytes[offset] ?? 0) ^ 1), 0, 1, offset);
    await handle.close();
  }

  it('has the digests of header, file and every chunk', () => {
    assert.deepEqual(Buffer.from(manifest.headerSha256), sha256(built.bytes.subarray(0, built.headerBytes)));
    assert.deepEqual(Buffer.from(manifest.fileSha256), sha256(built.bytes));
    for (const { offset, bytes, chunkSha256 } of manifest.tensors) {
      const chunks = [];
      for (let at = 0; at < bytes; at += CHUNK_BYTES) {
        chunks.push(sha256(built.bytes.subarray(offset + at, offset + Math.min(bytes, at + CHUNK_BYTES))));
      }
      assert.deepEqual(Buffer.from(chunkSha256), Buffer.concat(chunks));
    }
    assert.equal(manifest.tensors.find(({ name }) => name === 'blk.2.attn_q.weight')?.chunkSha256.length, 96);
  });

  it('gives the same digest to the same bytes in another file, and another to other bytes', async () => {
    const { digest } = identify(encodeManifest(manifest));
    const copy = join(dir, 'copy.gguf');
    await writeFile(copy, built.bytes);
    assert.deepEqual((await digestModel(copy, { signal: calm() })).digest, digest);
    await damage(built.bytes.length - 1);
    assert.notDeepEqual((await digestModel(path, { signal: calm() })).digest, digest);
  });

  it('counts every byte once', async () => {
    const seen: number[] = [];
    await digestModel(path, { signal: calm(), onProgress: (done, total) => {
      assert.equal(total, built.bytes.length);
      seen.push(done);
    } });
    assert.deepEqual(seen, seen.toSorted((a, b) => a - b));
    assert.equal(seen.at(-1), built.bytes.length);
  });

  it('stops when asked', async () => {
    const stop = new AbortController();
    const work = digestModel(path, { signal: stop.signal, onProgress: () => stop.abort() });
    await assert.rejects(work, (err) => isMeshnetError(err, 'CANCELLED'));
  });

  it('notices a file that grows while it is read', async () => {
    let grown = false;
    const work = digestModel(path, { signal: calm(), onProgress: () => {
      if (!grown) {
        grown = true;
        // Synchronously, so that it happens between two slices.
        process.getBuiltinModule('node:fs').appendFileSync(path, 'x');
      }
    } });
    await assert.rejects(work, (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
  });

  it('leaves the event loop free', async () => {
    const large = join(dir, 'large.gguf');
    const spec = smallModel();
    spec.tensors.push({ name: 'output.weight', dims: [8192, 1024] });
    const { bytes, headerBytes } = buildGguf({ ...spec, data: Buffer.alloc(0) });
    await writeFile(large, bytes);
    await truncate(large, headerBytes + 34 * 1024 * 1024);
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    await digestModel(large, { signal: calm() });
    delay.disable();
    // Hashing it in one piece would hold the loop for 100 ms and more; other load on the machine disturbs single samples.
    assert.ok(delay.percentile(50) < 20e6, `median ${delay.percentile(50) / 1e6} ms`);
  });

  it('verifies the owned ranges of a file whose rest is a hole', async () => {
    const range = { first: 1, last: 3 };
    const sparse = join(dir, 'sparse.gguf');
    const handle = await open(sparse, 'w');
    await handle.truncate(built.bytes.length);
    await handle.write(built.bytes, 0, built.headerBytes, 0);
    for (const { offset, bytes } of tensorsOfRange(manifest, range)) {
      await handle.write(built.bytes, offset, bytes, offset);
    }
    await handle.close();
    await verifyRange(sparse, manifest, range, { signal: calm() });
    await assert.rejects(
      verifyRange(sparse, manifest, { first: 0, last: 3 }, { signal: calm() }),
      (err) => isMeshnetError(err, 'DIGEST_MISMATCH') && err.details['tensor'] === 'token_embd.weight',
    );
  });

  it('names the tensor and the chunk of one wrong byte', async () => {
    const tensor = manifest.tensors.find(({ name }) => name === 'blk.2.attn_q.weight');
    assert.ok(tensor);
    for (const [at, chunk] of [[0, 0], [CHUNK_BYTES - 1, 0], [CHUNK_BYTES, 1], [tensor.bytes - 1, 2]] as const) {
      await writeFile(path, built.bytes);
      await damage(tensor.offset + at);
      await assert.rejects(verifyRange(path, manifest, { first: 2, last: 3 }, { signal: calm() }), (err) => {
        assert.ok(isMeshnetError(err, 'DIGEST_MISMATCH'));
        assert.equal(err.details['tensor'], tensor.name);
        assert.equal(err.details['chunk'], chunk);
        return true;
      });
      // It is no business of the other layers.
      await verifyRange(path, manifest, { first: 0, last: 2 }, { signal: calm() });
    }
  });

  it('refuses another header, another length and a range outside the model', async () => {
    await damage(10);
    await assert.rejects(verifyRange(path, manifest, { first: 0, last: 1 }, { signal: calm() }),
      (err) => isMeshnetError(err, 'DIGEST_MISMATCH'));
    await truncate(path, built.bytes.length - 1);
    await assert.rejects(verifyRange(path, manifest, { first: 0, last: 1 }, { signal: calm() }),
      (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
    await assert.rejects(verifyRange(path, manifest, { first: 0, last: 9 }, { signal: calm() }),
      (err) => isMeshnetError(err, 'RANGE_INVALID'));
  });

  it('refuses a manifest that lies about the header whose digest it has', async () => {
    const lies: Partial<Manifest>[] = [
      { architecture: 'qwen3' },
      { nLayer: 5 },
      { tensors: manifest.tensors.slice(1) },
      { tensors: manifest.tensors.map((tensor, i) => i === 1 ? { ...tensor, name: 'blk.0.other.weight' } : tensor) },
      { tensors: manifest.tensors.map((tensor, i) => i === 1 ? { ...tensor, dims: [64] } : tensor) },
    ];
    for (const lie of lies) {
      await assert.rejects(verifyRange(path, { ...manifest, ...lie }, { first: 0, last: 1 }, { signal: calm() }),
        (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
    }
  });

  it('refuses twelve models that are nearly the same', async () => {
    const digests = new Set<string>([identify(encodeManifest(manifest)).digest.toString()]);
    const size = (await stat(path)).size;
    const near = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map((i) => built.headerBytes + Math.floor((size - built.headerBytes - 64) * i / 12));
    for (const offset of near) {
      await writeFile(path, built.bytes);
      await damage(offset);
      digests.add((await digestModel(path, { signal: calm() })).digest.toString());
    }
    assert.equal(digests.size, 13);
  });
});
