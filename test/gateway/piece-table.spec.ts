import assert from 'node:assert/strict';
import { isMeshnetError } from '../../src/errors.ts';
import { PieceTable } from '../../src/gateway/piece-table.ts';

const { signal } = new AbortController();

describe('gateway/piece-table', () => {
  it('asks for each id once, and gives pieces in the order of the ids', async () => {
    const asked: (readonly number[])[] = [];
    const table = new PieceTable({
      async pieces(ids) {
        asked.push(ids);
        return ids.map((id) => Uint8Array.of(id));
      },
    });
    assert.deepEqual((await table.get([3, 1, 3], { signal })).map(([byte]) => byte), [3, 1, 3]);
    assert.deepEqual((await table.get([2, 1], { signal })).map(([byte]) => byte), [2, 1]);
    assert.deepEqual(await table.get([], { signal }), []);
    assert.deepEqual(asked, [[3, 1], [2]]);
  });

  it('fails when a piece is missing, and remembers nothing of it', async () => {
    let complete = false;
    const table = new PieceTable({
      async pieces(ids) {
        return complete ? ids.map((id) => Uint8Array.of(id)) : [];
      },
    });
    await assert.rejects(table.get([1], { signal }), (err) => isMeshnetError(err, 'TEXT_FAILED'));
    complete = true;
    assert.deepEqual((await table.get([1], { signal })).map(([byte]) => byte), [1]);
  });
});
