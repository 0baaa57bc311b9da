import assert from 'node:assert/strict';
import { MeshnetError, type ErrorCode } from '../../src/errors.ts';
import type { Generation, TokenEvent } from '../../src/gateway/backend.ts';
import { WarmGeneration } from '../../src/gateway/warm-generation.ts';
import { code, soon } from './used-model-rig.ts';

const END: TokenEvent = { ids: [9], finish: 'end' };

/** Gives its events, then throws or ends; over as soon as nobody reads it any more. */
class TestGeneration implements Generation {
  readonly route = { epoch: 1, stages: [] };
  readonly cachedTokens: number;
  readonly over = Promise.withResolvers<void>();
  readonly closed = this.over.promise;
  left = false;
  readonly #events: readonly (TokenEvent | ErrorCode)[];

  constructor(cachedTokens: number, events: readonly (TokenEvent | ErrorCode)[]) {
    this.cachedTokens = cachedTokens;
    this.#events = events;
  }

  async * [Symbol.asyncIterator](): AsyncGenerator<TokenEvent> {
    let ended = false;
    try {
      for (const event of this.#events) {
        if (typeof event === 'string') {
          throw new MeshnetError(event);
        }
        yield event;
      }
      ended = true;
    } finally {
      this.left = !ended;
      this.over.resolve();
    }
  }
}

describe('gateway/warm-generation', () => {
  let opened = 0;

  beforeEach(() => {
    opened = 0;
  });

  function over(warm: Generation, cold: Generation | ErrorCode, { signal } = soon()): WarmGeneration {
    return new WarmGeneration(warm, async () => {
      opened++;
      if (typeof cold === 'string') {
        throw new MeshnetError(cold);
      }
      return cold;
    }, { signal });
  }

  const unused = new TestGeneration(0, []);

  it('is the warm one as long as that goes well', async () => {
    const generation = over(new TestGeneration(40, [{ ids: [8] }, END]), unused);
    assert.deepEqual(await Array.fromAsync(generation), [{ ids: [8] }, END]);
    await generation.closed;
    assert.deepEqual([generation.cachedTokens, opened], [40, 0]);
  });

  it('begins anew when the warm one is lost before its first token, and says that nothing was cached', async () => {
    const cold = new TestGeneration(0, [{ ids: [8] }, END]);
    const generation = over(new TestGeneration(40, ['WORKER_LOST']), cold);
    assert.deepEqual(await Array.fromAsync(generation), [{ ids: [8] }, END]);
    await generation.closed;
    assert.deepEqual([generation.cachedTokens, opened], [0, 1]);
  });

  it('fails when it is lost after a token, or by the fault of the client', async () => {
    const broken = over(new TestGeneration(40, [{ ids: [8] }, 'WORKER_LOST']), unused);
    await assert.rejects(Array.fromAsync(broken), code('WORKER_LOST'));
    await broken.closed;
    await assert.rejects(Array.fromAsync(over(new TestGeneration(40, ['GRAMMAR_INVALID']), unused)), code('GRAMMAR_INVALID'));
    assert.equal(opened, 0);
  });

  it('fails when nobody wants the answer any more, or no new route opens', async () => {
    const signal = AbortSignal.abort();
    await assert.rejects(Array.fromAsync(over(new TestGeneration(40, ['CANCELLED']), unused, { signal })), code('CANCELLED'));
    assert.equal(opened, 0);
    const generation = over(new TestGeneration(40, ['WORKER_LOST']), 'NO_ROUTE');
    await assert.rejects(Array.fromAsync(generation), code('NO_ROUTE'));
    await generation.closed;
  });

  it('leaves the one that runs when its reader leaves', async () => {
    const cold = new TestGeneration(0, [{ ids: [8] }, END]);
    for await (const event of over(new TestGeneration(40, ['WORKER_LOST']), cold)) {
      assert.deepEqual(event.ids, [8]);
      break;
    }
    assert.equal(cold.left, true);
  });

  it('is over when the warm one is given back because nobody reads it', async () => {
    const warm = new TestGeneration(40, []);
    const generation = over(warm, unused);
    warm.over.resolve();
    await generation.closed;
    assert.equal(opened, 0);
  });
});
