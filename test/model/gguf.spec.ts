import assert from 'node:assert/strict';
import { mkdtemp, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gguf } from '@huggingface/gguf';
import fc from 'fast-check';
import { isMeshnetError } from '../../src/errors.ts';
import { GgufType } from '../../src/model/gguf-metadata.ts';
import { readGgufFile } from '../../src/model/gguf.ts';
import { buildGguf, list, smallModel, text, u32, type GgufSpec, type Value } from './gguf-builder.ts';

const HUGE = 2n ** 63n - 1n;

/** The small model with one metadata value in place of its own, or behind the others. */
function withKey(key: string, value: Value): GgufSpec {
  const spec = smallModel();
  const at = spec.metadata.findIndex(([name]) => name === key);
  if (at < 0) {
    spec.metadata.push([key, value]);
  } else {
    spec.metadata[at] = [key, value];
  }
  return spec;
}

function withoutKey(key: string): GgufSpec {
  const spec = smallModel();
  return { ...spec, metadata: spec.metadata.filter(([name]) => name !== key) };
}

function withTensor(change: Partial<GgufSpec['tensors'][number]>, at = 1): GgufSpec {
  const spec = smallModel();
  return { ...spec, tensors: spec.tensors.map((tensor, i) => i === at ? { ...tensor, ...change } : tensor) };
}

/** Overwrites bytes where a piece of the header begins. */
function patched(field: string, bytes: number[]): Buffer {
  const built = buildGguf(smallModel());
  const mark = built.marks.find((candidate) => candidate.field === field);
  assert.ok(mark, field);
  built.bytes.set(bytes, mark.offset);
  return built.bytes;
}

const u64Bytes = (value: bigint): number[] => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return [...bytes];
};

/** What is wrong with it, the file, and the field that the error must name. */
const BAD: [string, () => Buffer, RegExp][] = [
  ['no magic', () => patched('magic', [0x47, 0x47, 0x55, 0x4c]), /^magic$/],
  ['a zip file', () => patched('magic', [0x50, 0x4b, 3, 4]), /^magic$/],
  ['version 0', () => patched('version', [0, 0, 0, 0]), /^version$/],
  ['version 1', () => patched('version', [1, 0, 0, 0]), /^version$/],
  ['version 4', () => patched('version', [4, 0, 0, 0]), /^version$/],
  ['big endian', () => patched('version', [0, 0, 0, 3]), /^version$/],
  ['tensor count -1', () => patched('tensor_count', u64Bytes(2n ** 64n - 1n)), /^tensor_count$/],
  ['tensor count 2^63-1', () => patched('tensor_count', u64Bytes(HUGE)), /^tensor_count$/],
  ['tensor count above the limit', () => patched('tensor_count', u64Bytes(65_537n)), /^tensor_count$/],
  ['one tensor too many announced', () => patched('tensor_count', u64Bytes(7n)), /^tensor 6 name$|^tensor/],
  ['one tensor too few announced', () => buildGguf({ ...smallModel(), tensorCount: 0n }).bytes, /^tensor_count$/],
  ['no tensors', () => buildGguf({ ...smallModel(), tensors: [] }).bytes, /^tensor_count$/],
  ['key count -1', () => patched('metadata_count', u64Bytes(2n ** 64n - 1n)), /^metadata_count$/],
  ['key count above the limit', () => patched('metadata_count', u64Bytes(4097n)), /^metadata_count$/],
  ['one key too many announced', () => patched('metadata_count', u64Bytes(11n)), /^tensor 0 name$/],
  ['one key too few announced', () => patched('metadata_count', u64Bytes(9n)), /^tensor tokenizer/],
  ['an empty key', () => buildGguf(withKey('', u32(1))).bytes, /^key \d+$/],
  ['a key with a line end', () => buildGguf(withKey('a\nb', u32(1))).bytes, /^key \d+$/],
  ['a key that stands twice', () => {
    const spec = smallModel();
    spec.metadata.push(['llama.block_count', u32(2)]);
    return buildGguf(spec).bytes;
  }, /^llama\.block_count$/],
  ['a key of 2^63 bytes', () => patched('llama.block_count key', u64Bytes(HUGE)), /^key 1$/],
  ['a key longer than its limit', () => buildGguf(withKey('k'.repeat(300), u32(1))).bytes, /^key \d+$/],
  ['an unknown value type', () => buildGguf(withKey('x', { type: 13, value: 1 })).bytes, /^x type$/],
  ['value type 2^32-1', () => patched('llama.block_count type', [255, 255, 255, 255]), /^llama\.block_count type$/],
  ['a boolean of 2', () => patched('tokenizer.ggml.add_bos_token value', [2]), /^tokenizer\.ggml\.add_bos_token$/],
  ['a string of 2^63 bytes', () => patched('general.architecture value', u64Bytes(HUGE)), /^general\.architecture$/],
  ['a string of 2^64-1 bytes', () => patched('general.architecture value', u64Bytes(2n ** 64n - 1n)), /^general\.arch/],
  ['a string beyond the file', () => patched('general.architecture value', u64Bytes(15_000_000n)), /^general\.arch/],
  ['a string up to the end of the file', () => patched('tokenizer.ggml.model value', u64Bytes(1800n)), /./],
  ['an array of arrays', () => patched('tokenizer.ggml.tokens element type', [9, 0, 0, 0]), /tokens element type$/],
  ['an array of nothing known', () => patched('tokenizer.ggml.scores element type', [77, 0, 0, 0]), /scores element/],
  ['an array of 2^63 items', () => patched('tokenizer.ggml.tokens length', u64Bytes(HUGE)), /tokens length$/],
  ['an array whose bytes overflow', () => patched('tokenizer.ggml.scores length', u64Bytes(2n ** 62n)), /scores length$/],
  ['an array beyond the file', () => patched('tokenizer.ggml.scores length', u64Bytes(1_000_000n)), /^tokenizer\.ggml\.scores$/],
  ['strings beyond the file', () => patched('tokenizer.ggml.tokens length', u64Bytes(4_000_000n)), /^tokenizer\.ggml\.tokens$/],
  ['an item of 2^63 bytes', () => patched('tokenizer.ggml.tokens items', u64Bytes(HUGE)), /^tokenizer\.ggml\.tokens$/],
  ['scores as bytes', () => buildGguf(withKey('tokenizer.ggml.scores', list(GgufType.UINT8, [0, 0, 0, 0]))).bytes, /scores$/],
  ['scores as one number', () => buildGguf(withKey('tokenizer.ggml.scores', u32(1))).bytes, /scores$/],
  ['token types as f32', () => buildGguf(withKey('tokenizer.ggml.token_type', list(GgufType.FLOAT32, [1, 1, 1, 1]))).bytes, /token_type$/],
  ['tokens as numbers', () => buildGguf(withKey('tokenizer.ggml.tokens', list(GgufType.UINT32, [1, 2, 3, 4]))).bytes, /tokens$/],
  ['too few scores', () => buildGguf(withKey('tokenizer.ggml.scores', list(GgufType.FLOAT32, [0]))).bytes, /scores$/],
  ['too many token types', () => buildGguf(withKey('tokenizer.ggml.token_type', list(GgufType.INT32, [1, 1, 1, 1, 1]))).bytes, /token_type$/],
  ['no architecture', () => buildGguf(withoutKey('general.architecture')).bytes, /^general\.architecture$/],
  ['an architecture that is a number', () => buildGguf(withKey('general.architecture', u32(1))).bytes, /^general\.architecture$/],
  ['an architecture that is a path', () => buildGguf(withKey('general.architecture', text('../x'))).bytes, /^general\.architecture$/],
  ['no block count', () => buildGguf(withoutKey('llama.block_count')).bytes, /^llama\.block_count$/],
  ['a block count of zero', () => buildGguf(withKey('llama.block_count', u32(0))).bytes, /^llama\.block_count$/],
  ['a block count of 2^32-1', () => buildGguf(withKey('llama.block_count', u32(2 ** 32 - 1))).bytes, /^llama\.block_count$/],
  ['a block count below its blocks', () => buildGguf(withKey('llama.block_count', u32(3))).bytes, /^tensor blk\.3/],
  ['a negative block count', () => buildGguf(withKey('llama.block_count', { type: GgufType.INT32, value: -1 })).bytes, /block_count$/],
  ['a block count as f32', () => buildGguf(withKey('llama.block_count', { type: GgufType.FLOAT32, value: 4 })).bytes, /block_count$/],
  ['a block count as text', () => buildGguf(withKey('llama.block_count', text('4'))).bytes, /^llama\.block_count$/],
  ['no embedding length', () => buildGguf(withoutKey('llama.embedding_length')).bytes, /^llama\.embedding_length$/],
  ['no context length', () => buildGguf(withoutKey('llama.context_length')).bytes, /^llama\.context_length$/],
  ['no tokenizer', () => buildGguf(withoutKey('tokenizer.ggml.model')).bytes, /^tokenizer\.ggml\.model$/],
  ['one of several files', () => buildGguf(withKey('split.count', { type: GgufType.UINT16, value: 2 })).bytes, /^split\.count$/],
  ['an alignment of zero', () => buildGguf(withKey('general.alignment', u32(0))).bytes, /^general\.alignment$/],
  ['an alignment of 1', () => buildGguf(withKey('general.alignment', u32(1))).bytes, /^general\.alignment$/],
  ['an alignment of 48', () => buildGguf(withKey('general.alignment', u32(48))).bytes, /^general\.alignment$/],
  ['an alignment of 2^31', () => buildGguf(withKey('general.alignment', u32(2 ** 31))).bytes, /^general\.alignment$/],
  ['an alignment in 64 bits', () => buildGguf(withKey('general.alignment', { type: GgufType.UINT64, value: 32n })).bytes, /alignment$/],
  ['an alignment as text', () => buildGguf(withKey('general.alignment', text('32'))).bytes, /^general\.alignment$/],
  ['an empty tensor name', () => buildGguf(withTensor({ name: '' })).bytes, /^tensor 1 name$/],
  ['a tensor name of 64 bytes', () => buildGguf(withTensor({ name: 'n'.repeat(64) })).bytes, /^tensor 1 name$/],
  ['a tensor name with a zero byte', () => buildGguf(withTensor({ name: 'a\0b' })).bytes, /^tensor 1 name$/],
  ['a tensor that stands twice', () => buildGguf(withTensor({ name: 'token_embd.weight' })).bytes, /^tensor token_embd/],
  ['a block index beyond the model', () => buildGguf(withTensor({ name: 'blk.9.x' })).bytes, /^tensor blk\.9\.x$/],
  ['a block index with a zero in front', () => buildGguf(withTensor({ name: 'blk.00.x' })).bytes, /^tensor blk\.00\.x$/],
  ['a block index of 2^64', () => buildGguf(withTensor({ name: 'blk.18446744073709551616.x' })).bytes, /^tensor blk\./],
  ['no dimensions', () => buildGguf(withTensor({ dims: [] })).bytes, /n_dims$/],
  ['five dimensions', () => buildGguf(withTensor({ dims: [1, 1, 1, 1, 1] })).bytes, /n_dims$/],
  ['2^32-1 dimensions', () => patched('output_norm.weight n_dims', [255, 255, 255, 255]), /n_dims$/],
  ['a dimension of zero', () => buildGguf(withTensor({ dims: [8, 0] })).bytes, /dims$/],
  ['a negative dimension', () => buildGguf(withTensor({ dims: [8, 2n ** 64n - 8n], bytes: 256 })).bytes, /dims$/],
  ['dimensions whose product overflows', () => buildGguf(withTensor({ dims: [2n ** 33n, 2n ** 33n], bytes: 256 })).bytes, /dims$/],
  ['dimensions whose product wraps to 256', () => buildGguf(withTensor({ dims: [2n ** 32n, 2n ** 31n, 2n, 1n], bytes: 256 })).bytes, /dims$/],
  ['a type that was retired', () => buildGguf(withTensor({ type: 4 })).bytes, /type$/],
  ['a type that does not exist', () => buildGguf(withTensor({ type: 99 })).bytes, /type$/],
  ['type 2^32-1', () => patched('blk.0.attn_q.weight type', [255, 255, 255, 255]), /type$/],
  ['rows that are no whole blocks', () => buildGguf(withTensor({ type: 2 })).bytes, /dims$/],
  ['an offset inside the tensor before', () => buildGguf(withTensor({ offset: 0 })).bytes, /offset$/],
  ['an offset with a gap', () => buildGguf(withTensor({ offset: 256 })).bytes, /offset$/],
  ['an offset that is not aligned', () => buildGguf(withTensor({ offset: 129 })).bytes, /offset$/],
  ['an offset of 2^64-32', () => buildGguf(withTensor({ offset: 2n ** 64n - 32n })).bytes, /offset$/],
  ['tensors in another order', () => buildGguf(withTensor({ offset: 160 }, 0)).bytes, /offset$/],
  ['a tensor larger than the file', () => buildGguf(withTensor({ dims: [8, 2 ** 30] }, 5)).bytes.subarray(0, 4096), /./],
  ['no file at all', () => Buffer.alloc(0), /^magic$/],
  ['zeros', () => Buffer.alloc(4096), /^magic$/],
];

describe('model/gguf', () => {
  let dir = '';
  before(async () => { dir = await mkdtemp(join(tmpdir(), 'meshnet-gguf-')); });
  after(() => rm(dir, { recursive: true, force: true }));

  async function fileOf(bytes: Buffer): Promise<string> {
    const path = join(dir, 'model.gguf');
    await writeFile(path, bytes);
    return path;
  }

  async function refuses(bytes: Buffer, field: RegExp, name: string): Promise<void> {
    await assert.rejects(readGgufFile(await fileOf(bytes)), (err) => {
      assert.ok(isMeshnetError(err, 'MODEL_CORRUPT'), `${name}: ${String(err)}`);
      assert.match(String(err.details['field']), field, `${name}: ${err.message}`);
      return true;
    });
  }

  it('reads what a model of the format has', async () => {
    const built = buildGguf(smallModel());
    const header = await readGgufFile(await fileOf(built.bytes));
    assert.equal(header.architecture, 'llama');
    assert.equal(header.nLayer, 4);
    assert.equal(header.headerBytes, built.headerBytes);
    assert.equal(header.fileBytes, built.bytes.length);
    assert.equal(header.metadata.get('llama.context_length')?.value, 128);
    assert.deepEqual(header.metadata.get('tokenizer.ggml.tokens')?.array, { type: GgufType.STRING, length: 4 });
    assert.deepEqual(header.tensors.map(({ name }) => name), smallModel().tensors.map(({ name }) => name));
    assert.deepEqual(header.tensors[1], {
      name: 'blk.0.attn_q.weight', type: 0, dims: [8, 8], offset: built.headerBytes + 128, bytes: 256,
    });
  });

  it('agrees with an independent reader', async () => {
    const path = await fileOf(buildGguf(smallModel(7)).bytes);
    const ours = await readGgufFile(path);
    const theirs = await gguf(path, { allowLocalFile: true });
    assert.equal(BigInt(ours.headerBytes), theirs.tensorDataOffset);
    assert.deepEqual(
      ours.tensors.map(({ name, type, dims, offset }) => ({ name, type, dims, offset: offset - ours.headerBytes })),
      theirs.tensorInfos.map(({ name, dtype, shape, offset }) => ({
        name, type: dtype, dims: shape.map(Number), offset: Number(offset),
      })),
    );
  });

  it('takes quantised types, other alignments and long vocabularies', async () => {
    const words = Array.from({ length: 150_000 }, (_, i) => `word-${i}`);
    const spec = smallModel();
    spec.metadata.push(['general.alignment', u32(64)], ['tokenizer.chat_template', text('x'.repeat(2_000_000))]);
    for (const [key, items] of [['tokens', words], ['scores', words.map(() => 0)], ['token_type', words.map(() => 1)]] as const) {
      const entry = spec.metadata.find(([name]) => name === `tokenizer.ggml.${key}`);
      assert.ok(entry !== undefined && 'items' in entry[1]);
      entry[1].items = [...items];
    }
    spec.alignment = 64;
    spec.tensors.push({ name: 'output.weight', type: 8, dims: [64, 3], bytes: 204 });
    const built = buildGguf(spec);
    const header = await readGgufFile(await fileOf(built.bytes));
    assert.equal(header.headerBytes, built.headerBytes);
    assert.equal(header.tensors.at(-1)?.bytes, 204);
    assert.equal(header.metadata.get('tokenizer.ggml.tokens')?.array?.length, 150_000);
  });

  it(`refuses ${BAD.length} broken files, each with one error that names the field`, async () => {
    assert.ok(BAD.length >= 64);
    for (const [name, make, field] of BAD) {
      await refuses(make(), field, name);
    }
  });

  it('refuses a file that is cut short, wherever the cut is', async () => {
    const { bytes, marks, headerBytes } = buildGguf(smallModel());
    const cuts = marks.flatMap(({ offset }) => [offset, offset + 1, offset + 3]);
    for (const cut of [...cuts, headerBytes - 1, headerBytes, bytes.length - 64]) {
      if (cut < bytes.length - 32) {
        await refuses(bytes.subarray(0, cut), /./, `cut at ${cut}`);
      }
    }
  });

  it('refuses a tensor of terabytes that is not in the file, at once', async () => {
    const path = await fileOf(buildGguf(withTensor({ dims: [2 ** 20, 2 ** 20] }, 5)).bytes);
    await assert.rejects(readGgufFile(path), (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
    await truncate(path, 2 ** 33);
    await assert.rejects(readGgufFile(path), (err) => isMeshnetError(err, 'MODEL_CORRUPT'));
  });

  it('answers any change of bytes with a header or a typed error', async () => {
    const { bytes, headerBytes } = buildGguf(smallModel());
    const path = join(dir, 'fuzz.gguf');
    await fc.assert(fc.asyncProperty(
      fc.array(fc.tuple(fc.nat(headerBytes - 1), fc.nat(255)), { minLength: 1, maxLength: 6 }),
      async (changes) => {
        const changed = Buffer.from(bytes);
        for (const [at, value] of changes) {
          changed[at] = value;
        }
        await writeFile(path, changed);
        try {
          const header = await readGgufFile(path);
          assert.ok(header.tensors.every(({ offset, bytes: size }) => offset + size <= changed.length));
        } catch (err) {
          assert.ok(isMeshnetError(err, 'MODEL_CORRUPT'), String(err));
        }
      },
    ), { seed: 20_240_607, numRuns: 400 });
  });

  it('says that there is no such file, or that it is none', async () => {
    for (const path of [join(dir, 'absent.gguf'), dir]) {
      await assert.rejects(readGgufFile(path), (err) => isMeshnetError(err, 'SOURCE_UNAVAILABLE'));
    }
  });
});
