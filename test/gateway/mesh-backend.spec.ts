import assert from 'node:assert/strict';
import { create } from '@bufbuild/protobuf';
import { MeshnetError } from '../../src/errors.ts';
import type { GenerationRequest } from '../../src/gateway/backend.ts';
import { MeshBackend } from '../../src/gateway/mesh-backend.ts';
import { WarmSessions } from '../../src/gateway/warm-sessions.ts';
import type { OpenRoute } from '../../src/route/opener.ts';
import type { TurnInit } from '../../src/route/entry-seam.ts';
import { Finish, FrameSchema, Phase, type Frame } from '../../src/proto/seam_pb.js';
import { ManualClock } from '../net/manual-clock.ts';
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
  let resumed: number[];
  /** Thrown by the next Resume, and by the next turn before its first token. */
  let noResume: MeshnetError | undefined;
  let noTurn: MeshnetError | undefined;
  let warm: WarmSessions;

  beforeEach(() => {
    asked = [];
    turns = [];
    closed = [];
    resumed = [];
    noResume = undefined;
    noTurn = undefined;
    warm = new WarmSessions({ sessions: 4, positions: 1000, restMs: 1000, minPrefix: 2 }, { clock: new ManualClock() });
  });

  /** Its turns draw one token, 4, and end. */
  function route(): OpenRoute {
    return {
      summary: { epoch: 1, stages: [] }, positions: 8, lost: new AbortController().signal,
      entry: { turn: async function * (turn): AsyncGenerator<Frame> {
        turns.push(turn);
        const refusal = noTurn;
        noTurn = undefined;
        if (refusal !== undefined) {
          throw refusal;
        }
        const pos = (turn.start ?? 0) + turn.ids.length;
        yield create(FrameSchema, { phase: Phase.LOOP, nTokens: 1, tokens: [4], finish: Finish.END, pos });
      } },
      rest: async () => undefined,
      resume: async (positions) => {
        resumed.push(positions);
        if (noResume !== undefined) {
          throw noResume;
        }
      },
      close: async (reason) => { closed.push(reason); },
    };
  }

  function backend(positions = 8): MeshBackend {
    return new MeshBackend({
      models: [new World().model({ positions })],
      warm,
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

  describe('for a client that it knows', () => {
    const [alice, bob] = ['key a', 'key b'];
    /** Asks and reads to the end; gives what was cached. */
    const ask = async (mesh: MeshBackend, client: string, ids: readonly number[]): Promise<number> => {
      const generation = await mesh.generate({ ...REQUEST, client, ids }, soon());
      assert.deepEqual(await Array.fromAsync(generation), [{ ids: [4], finish: 'end' }]);
      await generation.closed;
      return generation.cachedTokens;
    };
    const sent = (): unknown[] => turns.map(({ turn, start, ids }) => [turn, start, ids]);

    it('sends only what follows what its last request left, on the same route', async () => {
      const mesh = backend(32);
      assert.equal(await ask(mesh, alice, [1, 2, 3]), 0);
      assert.equal(await ask(mesh, alice, [1, 2, 3, 4, 5]), 3);
      assert.equal(await ask(mesh, alice, [1, 2, 3, 4, 5, 6]), 5);
      assert.deepEqual(sent(), [[1, 0, [1, 2, 3]], [2, 3, [4, 5]], [3, 5, [6]]]);
      assert.equal(asked.length, 1);
      assert.deepEqual(resumed, [10, 11]);
      assert.deepEqual(closed, []);
    });

    it('goes back to where two prompts part', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3, 7]);
      assert.equal(await ask(mesh, alice, [1, 2, 3, 8, 9]), 3);
      // What every stage holds now begins with the new prompt.
      assert.equal(await ask(mesh, alice, [1, 2, 3, 8, 9, 5]), 5);
      assert.deepEqual(sent(), [[1, 0, [1, 2, 3, 7]], [2, 3, [8, 9]], [3, 5, [5]]]);
    });

    it('gives nobody else what one has left', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3]);
      assert.equal(await ask(mesh, bob, [1, 2, 3, 4]), 0);
      const nobody = await mesh.generate({ ...REQUEST, ids: [1, 2, 3, 4] }, soon());
      await Array.fromAsync(nobody);
      assert.equal(nobody.cachedTokens, 0);
      assert.equal(asked.length, 3);
      assert.equal(warm.size, 2);
      assert.deepEqual(closed, [undefined], 'only the session of nobody is over');
    });

    it('gives a session to one of two requests at a time', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3]);
      const both = await Promise.all([0, 1].map(() => mesh.generate({ ...REQUEST, client: alice, ids: [1, 2, 3, 5] }, soon())));
      assert.deepEqual(both.map(({ cachedTokens }) => cachedTokens).toSorted((a, b) => a - b), [0, 3]);
      await Promise.all(both.map((one) => Array.fromAsync(one)));
    });

    it('opens a new route when a stage does not go on with the old one', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3]);
      noResume = new MeshnetError('LEASE_EXPIRED');
      assert.equal(await ask(mesh, alice, [1, 2, 3, 4, 5]), 0);
      assert.equal(asked.length, 2);
      assert.deepEqual(closed.map((reason) => reason?.code), ['LEASE_EXPIRED']);
      assert.deepEqual(sent().at(-1), [1, 0, [1, 2, 3, 4, 5]]);
    });

    it('sends the whole prompt again when the old state cannot go back, or is lost before the first token', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3, 7]);
      noTurn = new MeshnetError('REWIND_LOST');
      assert.equal(await ask(mesh, alice, [1, 2, 3, 8]), 0);
      assert.deepEqual(sent(), [[1, 0, [1, 2, 3, 7]], [2, 3, [8]], [1, 0, [1, 2, 3, 8]]]);
      assert.deepEqual(closed.map((reason) => reason?.code), ['REWIND_LOST']);
      assert.equal(warm.size, 1);
    });

    it('tells a client that leaves while its session is asked for nothing but that', async () => {
      const mesh = backend(32);
      await ask(mesh, alice, [1, 2, 3]);
      noResume = new MeshnetError('CANCELLED');
      const gone = AbortSignal.abort(new MeshnetError('CANCELLED', 'the client has gone'));
      await assert.rejects(mesh.generate({ ...REQUEST, client: alice, ids: [1, 2, 3, 4] }, { signal: gone }), code('CANCELLED'));
      assert.equal(asked.length, 1);
      assert.equal(warm.size, 0);
    });
  });

  it('knows only the models of this node', async () => {
    await assert.rejects(backend().generate({ ...REQUEST, model: 'other' }, soon()), code('MODEL_UNKNOWN'));
    await assert.rejects(backend().text('other', soon()), code('MODEL_UNKNOWN'));
    assert.deepEqual([...(await backend().text('m', soon())).endIds], [2]);
    assert.deepEqual(backend().models().map(({ id }) => id), ['m']);
  });
});
