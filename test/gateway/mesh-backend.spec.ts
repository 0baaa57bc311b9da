import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import type { MeshnetError } from '../../src/errors.ts';
import type { GenerationRequest } from '../../src/gateway/backend.ts';
import { MeshBackend } from '../../src/gateway/mesh-backend.ts';
import type { OpenRoute } from '../../src/route/opener.ts';
import type { TurnInit } from '../../src/route/entry-seam.ts';
import { Finish, FrameSchema, Phase, type Frame } from '../../src/proto/seam_pb.js';
import { code, DIGEST, soon, World } from './used-model-rig.ts';

const REQUEST: GenerationRequest = {
  model: 'm', ids: [1, 2, 3], maxTokens: 5, logprobs: -1,
  sampling: {
    temperature: 0, topP: 1, topK: 0, minP: 0, presencePenalty: 0, frequencyPenalty: 0, seed: 7n, logitBias: [],
  },
};

describe('gateway/mesh-backend', () => {
  let asked: { digest: Uint8Array; nLayer: number; positions: number }[];
  let turns: TurnInit[];
  let closed: (MeshnetError | undefined)[];

  beforeEach(() => {
    asked = [];
    turns = [];
    closed = [];
  });

  function route(): OpenRoute {
    return {
      summary: { epoch: 1, stages: [] }, positions: 8, lost: new AbortController().signal,
      entry: { turn: async function * (turn): AsyncGenerator<Frame> {
        turns.push(turn);
        yield create(FrameSchema, { phase: Phase.LOOP, nTokens: 1, tokens: [4], finish: Finish.END });
      } },
      close: async (reason) => { closed.push(reason); },
    };
  }

  function backend(): MeshBackend {
    return new MeshBackend({
      models: [new World().model({ positions: 8 })],
      router: { open: async (digest, wish) => {
        asked.push({ digest, ...wish });
        return route();
      } },
      health: () => ({ ready: true, details: {} }),
    });
  }

  it('opens a route for prompt and answer together, runs one turn on it and closes it', async () => {
    const generation = await backend().generate({ ...REQUEST, grammar: 'root ::= "x"' }, soon());
    assert.deepEqual(asked, [{ digest: DIGEST, nLayer: 12, positions: 8 }]);
    assert.deepEqual(await Array.fromAsync(generation), [{ ids: [4], finish: 'end' }]);
    const { sampling, ...turn } = turns[0] as TurnInit;
    assert.deepEqual(turn, {
      turn: 1, start: 0, ids: [1, 2, 3], maxTokens: 5, grammar: 'root ::= "x"', logprobs: -1, ignoreEnd: false,
    });
    assert.equal(sampling?.seed, 7n);
    assert.deepEqual(closed, [undefined]);
  });

  it('refuses what does not fit the context before it asks the mesh', async () => {
    await assert.rejects(backend().generate({ ...REQUEST, maxTokens: 6 }, soon()), code('CONTEXT_LENGTH_EXCEEDED'));
    assert.deepEqual(asked, []);
  });

  it('knows only the models of this node', async () => {
    await assert.rejects(backend().generate({ ...REQUEST, model: 'other' }, soon()), code('MODEL_UNKNOWN'));
    await assert.rejects(backend().text('other', soon()), code('MODEL_UNKNOWN'));
    assert.deepEqual([...(await backend().text('m', soon())).endIds], [2]);
    assert.deepEqual(backend().models().map(({ id }) => id), ['m']);
  });
});
