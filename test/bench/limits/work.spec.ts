import assert from 'node:assert/strict';
import { decodeWork, prefillWork } from '../../../bench/limits/work.ts';
import { u32 } from '../../model/gguf-builder.ts';
import { smallShape } from './shapes.ts';

const Q8_0_BYTES = 34 / 32;
const LAYER = 64 * 64 * 2 + 64 * 32 * 2;
const HEAD = 64 * 4;
const ROW = 64;
/** One layer's norm, and the one before the head. */
const NORMS = (2 + 1) * 64 * 4;

describe('bench/limits/work', () => {
  it('reads every weight once a decode step, and of the embedding the rows of the tokens', async () => {
    const { weightBytes } = decodeWork(await smallShape({ tied: false }), { context: 9, sessions: 3 });
    assert.deepEqual(weightBytes, { Q8_0: (2 * LAYER + HEAD + 3 * ROW) * Q8_0_BYTES, F32: NORMS });
  });

  it('reads a tied embedding once more, as the output head', async () => {
    const tied = decodeWork(await smallShape({ tied: true }), { context: 9, sessions: 3 });
    const untied = decodeWork(await smallShape({ tied: false }), { context: 9, sessions: 3 });
    assert.deepEqual(tied, untied);
  });

  it('reads keys and values of every position of every session', async () => {
    const shape = await smallShape({ tied: true });
    const { kvBytes, bytes, weightBytes } = decodeWork(shape, { context: 9, sessions: 3 });
    // Layers, sessions, positions, keys and values, one head of 32 numbers, two bytes each.
    assert.equal(kvBytes, 2 * 3 * 10 * 2 * 32 * 2);
    assert.equal(bytes, kvBytes + (weightBytes['Q8_0'] ?? 0) + (weightBytes['F32'] ?? 0));
    assert.equal(decodeWork(shape, { context: 9, sessions: 3, kvBytes: 4 }).kvBytes, 2 * kvBytes);
  });

  it('counts a multiply-add of every weight and session as two', async () => {
    const { matrixOps, attentionOps } = decodeWork(await smallShape({ tied: true }), { context: 9, sessions: 3 });
    assert.equal(matrixOps, 2 * (2 * LAYER + HEAD) * 3);
    // Two products of 32 numbers, for each of two heads.
    assert.equal(attentionOps, 2 * 2 * 2 * 2 * 32 * 3 * 10);
  });

  it('counts weights as a system holds them that has its own type', async () => {
    const { weightBytes } = decodeWork(await smallShape({ tied: true }), { context: 9, sessions: 1, weightBytes: 4 });
    assert.deepEqual(weightBytes, { '4 bytes each': (2 * LAYER + HEAD + ROW) * 4 + NORMS });
  });

  it('reads the weights again for each batch of a prefill, the head for as many as need it', async () => {
    const shape = await smallShape({ tied: false });
    const { weightBytes } = prefillWork(shape, { context: 64, sessions: 2, ubatch: 32 });
    assert.equal(weightBytes['F32'], 4 * NORMS);
    assert.equal(weightBytes['Q8_0'], (4 * 2 * LAYER + 2 * HEAD + 2 * 64 * ROW) * Q8_0_BYTES);
  });

  it('computes of the last layer what the last rows need, and keys and values of all', async () => {
    const shape = await smallShape({ tied: true });
    const { matrixOps, attentionOps } = prefillWork(shape, { context: 8, sessions: 2, ubatch: 512 });
    const others = 64 * 64 * 2;
    assert.equal(matrixOps, 2 * (LAYER * 16 + (LAYER - others) * 16 + others * 2 + HEAD * 2));
    assert.equal(attentionOps, 2 * 2 * 2 * 32 * (2 * 36 + 2 * 8));
  });

  it('reads the cells of a batch once, up to its last row', async () => {
    const shape = await smallShape({ tied: true });
    const perCell = 2 * 2 * 32 * 2;
    assert.equal(prefillWork(shape, { context: 8, sessions: 2, ubatch: 512 }).kvBytes, 16 * perCell);
    // Rows 0-5, then 6-7 with 0-3 of the second session, then its 4-7.
    assert.equal(prefillWork(shape, { context: 8, sessions: 2, ubatch: 6 }).kvBytes, (6 + 8 + 4 + 8) * perCell);
  });

  it('refuses a model with experts', async () => {
    const extra = [['llama.expert_count', u32(8)]] as const;
    await assert.rejects(smallShape({ tied: true, extra }), { code: 'NOT_CERTIFIED' });
  });
});
