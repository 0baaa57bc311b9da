import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { PieceBlocks, type PieceOptions } from '../../src/worker/piece-blocks.ts';

const { signal } = new AbortController();
const VOCABULARY = 3000;

/** Pieces of other lengths, some empty; `broken` has none. */
function pieceOf(id: number, { special = false }: PieceOptions): Uint8Array {
  return new Uint8Array(id % 5).fill(special ? id + 1 : id);
}

/** As many pieces at once as fit into a message. */
const MOST = 2500;

function rig({ remembered = 100_000, broken = -1 } = {}): { blocks: PieceBlocks; asked: (readonly number[])[] } {
  const asked: (readonly number[])[] = [];
  const blocks = new PieceBlocks({
    ask: async (ids, options) => {
      asked.push(ids);
      if (ids.some((id) => id < 0 || id >= VOCABULARY || id === broken)) {
        throw new MeshnetError('TOKEN_INVALID');
      }
      if (ids.length > MOST) {
        throw new MeshnetError('RESOURCE_EXHAUSTED');
      }
      return ids.map((id) => pieceOf(id, options));
    },
    size: () => VOCABULARY,
  }, { remembered });
  return { blocks, asked };
}

describe('worker/piece-blocks', () => {
  it('gives the pieces of any ids in their order, and asks for each neighbourhood once', async () => {
    const { blocks, asked } = rig();
    for (const ids of [[3, 1, 3], [2999, 0, 1024, 1023], [2], [2048], []]) {
      assert.deepEqual(await blocks.get(ids, { signal }), ids.map((id) => pieceOf(id, { signal })));
    }
    assert.deepEqual(asked.map(({ length }) => length), [1024, 952 + 1024]);
    assert.deepEqual(asked.flat().toSorted((a, b) => a - b), Array.from({ length: VOCABULARY }, (_, id) => id));
  });

  it('keeps pieces with the text of control tokens apart', async () => {
    const { blocks } = rig();
    assert.deepEqual(await blocks.get([4], { signal, special: true }), [pieceOf(4, { signal, special: true })]);
    assert.deepEqual(await blocks.get([4], { signal }), [pieceOf(4, { signal })]);
  });

  it('forgets what was unused for longest', async () => {
    const { blocks, asked } = rig({ remembered: 2048 });
    await blocks.get([0], { signal });
    await blocks.get([1024], { signal });
    await blocks.get([0], { signal });
    await blocks.get([2048], { signal });
    await blocks.get([1], { signal });
    assert.deepEqual(asked.map(([first]) => first), [0, 1024, 2048]);
    await blocks.get([1025], { signal });
    assert.equal(asked.length, 4);
  });

  it('passes on the refusal of an id outside the vocabulary', async () => {
    const { blocks } = rig();
    for (const id of [-1, VOCABULARY, 4096, 2 ** 31 - 1]) {
      await assert.rejects(blocks.get([1, id], { signal }), (err) => isMeshnetError(err, 'TOKEN_INVALID'), String(id));
    }
  });

  it('gives an id its piece although a neighbour has none, and asks once whether it has', async () => {
    const { blocks, asked } = rig({ broken: 7 });
    for (let i = 0; i < 2; i++) {
      assert.deepEqual(await blocks.get([8, 2000, 8], { signal }), [8, 2000, 8].map((id) => pieceOf(id, { signal })));
      await assert.rejects(blocks.get([7], { signal }), (err) => isMeshnetError(err, 'TOKEN_INVALID'));
    }
    // Both blocks, each of them, and then what is alone.
    assert.deepEqual(asked.map(({ length }) => length), [2048, 1024, 1024, 1, 1, 1, 1]);
  });

  it('asks for fewer at once when the pieces of all are too long', async () => {
    const { blocks } = rig();
    const ids = [0, 1024, 2999];
    assert.deepEqual(await blocks.get(ids, { signal }), ids.map((id) => pieceOf(id, { signal })));
  });

  it('asks for no id twice because of another one', async () => {
    const { blocks, asked } = rig();
    const ids = [...Array.from({ length: 5000 }, () => 1), VOCABULARY, VOCABULARY];
    await assert.rejects(blocks.get(ids, { signal }), (err) => isMeshnetError(err, 'TOKEN_INVALID'));
    assert.deepEqual(asked.map(({ length }) => length), [1024 + 952, 1]);
  });

  it('remembers nothing of an answer that leaves pieces out, and asks again', async () => {
    let whole = false;
    const blocks = new PieceBlocks({
      ask: async (ids, options) => (whole ? ids : ids.slice(1)).map((id) => pieceOf(id, options)),
      size: () => VOCABULARY,
    }, { remembered: 1 });
    await assert.rejects(blocks.get([1], { signal }), (err) => isMeshnetError(err, 'TEXT_FAILED'));
    whole = true;
    assert.deepEqual(await blocks.get([1], { signal }), [pieceOf(1, { signal })]);
  });

  it('asks in parts for more ids than one call may have', async () => {
    const asked: number[] = [];
    const blocks = new PieceBlocks({
      ask: async (ids, options) => {
        asked.push(ids.length);
        return ids.map((id) => pieceOf(id, options));
      },
      // Before the first description.
      size: () => 0,
    }, { remembered: 1 });
    const ids = Array.from({ length: 20_000 }, (_, id) => id);
    assert.deepEqual((await blocks.get(ids, { signal })).length, ids.length);
    assert.deepEqual(asked, [16_384, 20_000 - 16_384]);
  });
});
