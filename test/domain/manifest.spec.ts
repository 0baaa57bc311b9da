import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import fc from 'fast-check';
import { LIMITS } from '../../src/domain/limits.ts';
import {
  CHUNK_BYTES,
  blockIndex,
  chunkCount,
  decodeManifest,
  encodeManifest,
  modelDigest,
  rangeBytes,
  tensorsOfRange,
  type Manifest,
  type TensorEntry,
} from '../../src/domain/manifest.ts';
import { tensorBytes } from '../../src/domain/tensor-type.ts';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { ManifestSchema } from '../../src/proto/peer_pb.js';

const HEADER_BYTES = 4096;

function entry(name: string, offset: number, dims: number[] = [64]): TensorEntry {
  const bytes = tensorBytes(0, dims) ?? 0;
  return { name, type: 0, dims, offset, bytes, chunkSha256: new Uint8Array(32 * chunkCount(bytes, CHUNK_BYTES)).fill(7) };
}

function manifestOf(names: string[], nLayer = 4): Manifest {
  const tensors: TensorEntry[] = [];
  let offset = HEADER_BYTES;
  for (const name of names) {
    const tensor = entry(name, offset);
    tensors.push(tensor);
    offset += tensor.bytes;
  }
  return {
    version: 1,
    headerSha256: new Uint8Array(32).fill(1),
    headerBytes: HEADER_BYTES,
    fileBytes: offset,
    fileSha256: new Uint8Array(32).fill(2),
    architecture: 'llama',
    nLayer,
    chunkBytes: CHUNK_BYTES,
    tensors,
  };
}

const NAMES = [
  'token_embd.weight', 'rope_freqs.weight', 'blk.0.attn_q.weight', 'blk.1.attn_q.weight', 'blk.2.attn_q.weight',
  'blk.3.attn_q.weight', 'output_norm.weight',
];
const names = (tensors: TensorEntry[]): string[] => tensors.map(({ name }) => name);

function refuses(bytes: Uint8Array, code: ErrorCode, field?: string): void {
  assert.throws(() => decodeManifest(bytes), (err) => {
    assert.ok(isMeshnetError(err, code), String(err));
    if (field !== undefined) {
      assert.equal(err.details['field'], field);
    }
    return true;
  });
}

describe('domain/manifest', () => {
  const good = manifestOf(NAMES);

  it('gives the same manifest and bytes after a round trip', () => {
    const bytes = encodeManifest(good);
    const decoded = decodeManifest(bytes);
    assert.deepEqual(decoded, good);
    assert.deepEqual(encodeManifest(decoded), bytes);
    assert.equal(modelDigest(bytes).length, 32);
  });

  it('keeps sizes above 4 GiB exact', () => {
    const offset = 2 ** 40 + 32;
    const big = { ...good, fileBytes: offset + 256, tensors: [entry('output_norm.weight', offset)] };
    assert.deepEqual(decodeManifest(encodeManifest(big)), big);
  });

  it('changes its digest with every field', () => {
    const digests = new Set<string>();
    const variants: Manifest[] = [
      good,
      { ...good, fileSha256: new Uint8Array(32).fill(3) },
      { ...good, headerSha256: new Uint8Array(32).fill(3) },
      { ...good, architecture: 'qwen3' },
      { ...good, nLayer: 5 },
      { ...good, chunkBytes: CHUNK_BYTES * 2 },
      { ...good, fileBytes: good.fileBytes + 1 },
      { ...good, headerBytes: HEADER_BYTES - 1 },
    ];
    for (const variant of variants) {
      digests.add(Buffer.from(modelDigest(encodeManifest(variant))).toString('hex'));
    }
    assert.equal(digests.size, variants.length);
  });

  it('refuses a manifest that contradicts itself, and names the field', () => {
    const first = entry('a', HEADER_BYTES);
    const cases: [Partial<Manifest>, string][] = [
      [{ headerSha256: new Uint8Array(31) }, 'header_sha256'],
      [{ fileSha256: new Uint8Array(0) }, 'file_sha256'],
      [{ headerBytes: 0 }, 'header_bytes'],
      [{ fileBytes: HEADER_BYTES - 1 }, 'header_bytes'],
      [{ architecture: '' }, 'architecture'],
      [{ architecture: '../llama' }, 'architecture'],
      [{ nLayer: 0 }, 'n_layer'],
      [{ chunkBytes: 0 }, 'chunk_bytes'],
      [{ chunkBytes: 4096 }, 'chunk_bytes'],
      [{ chunkBytes: 3 * 65_536 }, 'chunk_bytes'],
      [{ chunkBytes: 2 ** 31 }, 'chunk_bytes'],
      [{ tensors: [] }, 'tensors'],
      [{ tensors: [entry('', HEADER_BYTES)] }, 'name'],
      [{ tensors: [entry('a b', HEADER_BYTES)] }, 'name'],
      [{ tensors: [entry('n'.repeat(64), HEADER_BYTES)] }, 'name'],
      [{ tensors: [first, entry('a', HEADER_BYTES + 256)] }, 'name'],
      [{ tensors: [entry('blk.4.x', HEADER_BYTES)] }, 'layer'],
      [{ tensors: [entry('blk.01.x', HEADER_BYTES)] }, 'layer'],
      [{ tensors: [entry('blk.x', HEADER_BYTES)] }, 'layer'],
      [{ tensors: [{ ...first, bytes: 255 }] }, 'bytes'],
      [{ tensors: [{ ...first, type: 4 }] }, 'bytes'],
      [{ tensors: [{ ...first, dims: [] }] }, 'bytes'],
      [{ tensors: [{ ...first, dims: [0] }] }, 'bytes'],
      [{ tensors: [{ ...first, dims: [2 ** 40, 2 ** 40] }] }, 'bytes'],
      [{ tensors: [entry('a', HEADER_BYTES - 32)] }, 'offset'],
      [{ tensors: [first, entry('b', HEADER_BYTES + 128)] }, 'offset'],
      [{ tensors: [entry('b', HEADER_BYTES + 256), first] }, 'offset'],
      [{ tensors: [entry('a', good.fileBytes - 128)] }, 'offset'],
      [{ tensors: [{ ...first, chunkSha256: new Uint8Array(64) }] }, 'chunk_sha256'],
      [{ tensors: [{ ...first, chunkSha256: new Uint8Array(0) }] }, 'chunk_sha256'],
    ];
    for (const [change, field] of cases) {
      refuses(encodeManifest({ ...good, ...change }), 'MALFORMED', field);
    }
    refuses(encodeManifest({ ...good, version: 2 }), 'VERSION_UNSUPPORTED');
    refuses(encodeManifest({ ...good, nLayer: LIMITS.layersPerModel + 1 }), 'LIMIT_EXCEEDED', 'n_layer');
    refuses(encodeManifest({ ...good, headerBytes: LIMITS.headerBytes + 1 }), 'LIMIT_EXCEEDED', 'header_bytes');
  });

  it('refuses bytes that are not canonical', () => {
    const bytes = encodeManifest(good);
    refuses(new Uint8Array(), 'VERSION_UNSUPPORTED');
    refuses(bytes.subarray(0, bytes.length - 1), 'MALFORMED');
    refuses(Uint8Array.of(...bytes, 0x50, 1), 'MALFORMED', 'wire type'); // field 10, unknown
    refuses(Uint8Array.of(...bytes, 0x52, 0), 'MALFORMED', 'unknown field');
    refuses(Uint8Array.of(...bytes, 0x08, 1), 'MALFORMED', 'encoding'); // version again
    refuses(Uint8Array.of(0x08, 0x81, 0x00, ...bytes.subarray(2)), 'MALFORMED', 'encoding'); // overlong varint
    refuses(Uint8Array.of(...bytes.subarray(2), ...bytes.subarray(0, 2)), 'MALFORMED', 'encoding'); // other order
    const unpacked = create(ManifestSchema, { version: 1 });
    refuses(toBinary(ManifestSchema, unpacked), 'MALFORMED', 'header_sha256');
    const odd = entry('output_norm.weight', HEADER_BYTES);
    refuses(encodeManifest({ ...good, tensors: [{ ...odd, dims: [16, 1, 2, 2, 1] }] }), 'MALFORMED', 'dims');
  });

  it('stops at the limits before it allocates', () => {
    refuses(new Uint8Array(LIMITS.manifestBytes + 1), 'LIMIT_EXCEEDED', 'manifest');
    const empties = new Uint8Array(2 * (LIMITS.tensorsPerModel + 1));
    for (let i = 0; i < empties.length; i += 2) {
      empties[i] = 0x4a;
    }
    refuses(empties, 'LIMIT_EXCEEDED', 'tensors');
  });

  it('answers any bytes with a manifest or a typed error', () => {
    const bytes = encodeManifest(good);
    fc.assert(fc.property(
      fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
      (changes) => {
        const changed = bytes.slice();
        for (const [at, value] of changes) {
          changed[at] = value;
        }
        try {
          assert.deepEqual(encodeManifest(decodeManifest(changed)), changed);
        } catch (err) {
          assert.ok(isMeshnetError(err), String(err));
        }
      },
    ), { seed: 20_240_607, numRuns: 2000 });
  });

  it('gives each tensor to the shards that load it', () => {
    assert.deepEqual(names(tensorsOfRange(good, { first: 0, last: 4 })), NAMES);
    assert.deepEqual(names(tensorsOfRange(good, { first: 0, last: 2 })), NAMES.slice(0, 4));
    assert.deepEqual(names(tensorsOfRange(good, { first: 1, last: 3 })), [NAMES[1], NAMES[3], NAMES[4]]);
    // Tied: the tail has the token embedding as its output head.
    assert.deepEqual(names(tensorsOfRange(good, { first: 3, last: 4 })), [NAMES[0], NAMES[1], NAMES[5], NAMES[6]]);
    const untied = manifestOf([...NAMES, 'output.weight']);
    assert.deepEqual(names(tensorsOfRange(untied, { first: 3, last: 4 })), [NAMES[1], NAMES[5], NAMES[6], 'output.weight']);
    assert.equal(rangeBytes(good, { first: 1, last: 3 }), 3 * 256);
  });

  it('covers every tensor by any cut of the layers', () => {
    for (let cut = 1; cut < 4; cut++) {
      const both = [...tensorsOfRange(good, { first: 0, last: cut }), ...tensorsOfRange(good, { first: cut, last: 4 })];
      assert.deepEqual(new Set(names(both)), new Set(NAMES));
    }
  });

  it('reads the block of a tensor out of its name', () => {
    assert.equal(blockIndex('blk.0.attn_q.weight'), 0);
    assert.equal(blockIndex('blk.17.x'), 17);
    assert.equal(blockIndex('output.weight'), undefined);
    assert.equal(blockIndex('blk.01.x'), undefined);
  });
});
