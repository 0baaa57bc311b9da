import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import type { AnswerPart } from '../../src/gateway/answer.ts';
import { AnswerBuffer } from '../../src/gateway/answer-buffer.ts';

const part = (text: string): AnswerPart => ({ text, tokens: [{ bytes: Buffer.from(text), logprob: -1, top: [] }] });

describe('gateway/answer-buffer', () => {
  it('gives parts one by one to a reader who is not behind', async () => {
    const buffer = new AnswerBuffer(10);
    const first = buffer.take(1);
    buffer.push(part('a'));
    buffer.push(part('b'));
    assert.deepEqual(await first, part('a'));
    assert.deepEqual(await buffer.take(1), part('b'));
    const last = buffer.take(1);
    buffer.end();
    assert.equal(await last, undefined);
    assert.equal(await buffer.take(1), undefined);
  });

  it('unites what has come meanwhile, tokens too, up to what is asked for', async () => {
    const buffer = new AnswerBuffer(10);
    for (const text of 'abcde') {
      buffer.push(part(text));
    }
    buffer.end();
    const united = await buffer.take(3);
    assert.equal(united?.text, 'abc');
    assert.deepEqual(united.tokens, ['a', 'b', 'c'].flatMap((text) => part(text).tokens));
    assert.equal((await buffer.take(16))?.text, 'de');
    assert.equal(await buffer.take(16), undefined);
  });

  it('gives what came before a failure, then the failure', async () => {
    const buffer = new AnswerBuffer(10);
    buffer.push(part('a'));
    buffer.fail(new MeshnetError('WORKER_LOST'));
    buffer.end();
    assert.equal((await buffer.take(1))?.text, 'a');
    await assert.rejects(buffer.take(1), (err) => isMeshnetError(err, 'WORKER_LOST'));
    const waiting = new AnswerBuffer(10);
    const next = waiting.take(1);
    waiting.fail(new MeshnetError('SEAM_TIMEOUT'));
    await assert.rejects(next, (err) => isMeshnetError(err, 'SEAM_TIMEOUT'));
  });

  it('holds no more than its limit', async () => {
    const buffer = new AnswerBuffer(2);
    buffer.push(part('a'));
    buffer.push(part('b'));
    assert.throws(() => buffer.push(part('c')), (err) => isMeshnetError(err, 'READER_TOO_SLOW') && err.details['limit'] === 2);
    assert.equal((await buffer.take(1))?.text, 'a');
    buffer.push(part('c'));
  });
});
