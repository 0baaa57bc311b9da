import assert from 'node:assert/strict';
import { LIMITS } from '../../src/domain/limits.ts';
import type { FrameInit } from '../../src/domain/seam-end.ts';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import { Finish, Phase, Role, type Frame } from '../../src/proto/seam_pb.js';
import { EntrySeam, type EntrySeamInit, type TurnInit } from '../../src/route/entry-seam.ts';
import type { PacketDuplex } from '../../src/worker/packet-duplex.ts';
import { code, Head, LANE, loopFrame, MODEL, soon } from './rig.ts';

const TURN: TurnInit = { turn: 1, start: 0, ids: [1, 2, 3], maxTokens: 4, logprobs: -1 };

const BAD_FRAMES: [what: string, frames: FrameInit[]][] = [
  ['more tokens than asked for', [loopFrame([1, 2, 3]), loopFrame([4, 5])]],
  ['loop frames without tokens', [loopFrame([])]],
  ['another count than it names', [{ ...loopFrame([1]), nTokens: 2 }]],
  ['logprobs that nobody asked for', [{ ...loopFrame([1]), logprobs: [{ logprob: 0 }] }]],
  ['an activation', [{ phase: Phase.DECODE, nTokens: 1 }]],
  ['an id below 0', [loopFrame([-1])]],
  ['an unknown finish', [loopFrame([1], 99 as Finish)]],
];

describe('route/entry-seam', () => {
  let head: Head;

  beforeEach(() => {
    head = new Head();
  });

  function seam(init: Partial<EntrySeamInit> = {}, stream: PacketDuplex = head.near): EntrySeam {
    return new EntrySeam(stream, { lane: LANE, modelDigest: MODEL, positions: 64, ...init });
  }

  async function opened(init: Partial<EntrySeamInit> = {}): Promise<EntrySeam> {
    const entry = seam(init);
    await Promise.all([entry.open(soon()), head.opened()]);
    return entry;
  }

  async function tokensOf(frames: AsyncIterable<Frame>): Promise<number[]> {
    return (await Array.fromAsync(frames)).flatMap(({ tokens }) => tokens);
  }

  it('says who it is, for which model, and for how many positions', async () => {
    const entry = seam();
    const opening = entry.open(soon());
    const { open } = await head.next() as Frame;
    assert.deepEqual([open?.role, open?.limits?.maxPositions, open?.attempt], [Role.ENTRY, 64, 1]);
    assert.deepEqual(open?.modelDigest, MODEL);
    await head.fail(new MeshnetError('MODEL_MISMATCH'));
    await assert.rejects(opening, code('MODEL_MISMATCH'));
  });

  it('gives up a head that does not answer Open', async () => {
    await assert.rejects(seam({ handshakeMs: 20 }).open(soon()), code('SEAM_TIMEOUT'));
  });

  it('gives up a head that takes nothing', async () => {
    const stuck: PacketDuplex = { ...head.near, path: head.near.path, read: () => head.near.read(), abort: () => undefined,
      close: async () => undefined, write: () => new Promise(() => undefined) };
    await assert.rejects(seam({ idleMs: 20 }, stuck).open(soon()), code('SEAM_TIMEOUT'));
  });

  it('refuses another answer to Open', async () => {
    const opening = seam().open(soon());
    await head.next();
    await head.send(loopFrame([1]));
    await assert.rejects(opening, code('MALFORMED'));
  });

  it('sends a turn with its ids and yields up to and with the finish', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    const { turn, ids } = await head.turn();
    assert.deepEqual([turn.turn?.turn, turn.turn?.nTokens, turn.turn?.maxTokens, ids], [1, 3, 4, [1, 2, 3]]);
    await head.send(loopFrame([7]));
    await head.send(loopFrame([8], Finish.END));
    assert.deepEqual(await tokens, [7, 8]);
  });

  it('cuts a long prompt into pieces of the limit', async () => {
    const entry = await opened();
    const ids = Array.from({ length: 2 * LIMITS.tokensPerPiece }, (_, i) => i);
    const tokens = tokensOf(entry.turn({ ...TURN, ids }, soon()));
    const got = await head.turn();
    assert.equal(got.pieces, 2);
    assert.deepEqual(got.ids, ids);
    await head.send(loopFrame([1], Finish.MAX_TOKENS));
    await tokens;
  });

  it('acknowledges every sixteenth frame', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn({ ...TURN, maxTokens: 40 }, soon()));
    await head.turn();
    for (let i = 0; i < 33; i++) {
      await head.send(loopFrame([i], i === 32 ? Finish.END : Finish.UNSPECIFIED));
    }
    assert.equal((await tokens).length, 33);
    const closing = entry.close(soon());
    assert.equal((await head.next())?.ack, 33n);
    await head.close();
    await closing;
  });

  it('cancels the turn at the head when it is left early', async () => {
    const entry = await opened();
    const turn = (async () => {
      for await (const frame of entry.turn(TURN, soon())) {
        assert.deepEqual(frame.tokens, [7]);
        break;
      }
    })();
    await head.turn();
    await head.send(loopFrame([7]));
    assert.equal((await head.next())?.cancel?.turn, 1);
    await turn;
  });

  it('cancels the turn when the signal fires, whatever the head does', async () => {
    const entry = await opened();
    const gone = new AbortController();
    const tokens = tokensOf(entry.turn(TURN, { signal: gone.signal }));
    tokens.catch(() => undefined);
    await head.turn();
    gone.abort(new MeshnetError('CANCELLED', 'the client has gone'));
    await assert.rejects(tokens, code('CANCELLED'));
    assert.equal((await head.next())?.cancel?.turn, 1);
  });

  it('leaves a running turn with one cancel, then drops the stream', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    tokens.catch(() => undefined);
    await head.turn();
    const next = head.next();
    await entry.leave(new MeshnetError('CANCELLED', 'the client has gone'));
    assert.equal((await next)?.cancel?.turn, 1);
    await assert.rejects(tokens, code('CANCELLED'));
    await assert.rejects(head.next(), code('CANCELLED'));
  });

  it('drops a head that takes no cancel in time', async () => {
    const entry = await opened({ cancelMs: 20 });
    const tokens = tokensOf(entry.turn(TURN, soon()));
    tokens.catch(() => undefined);
    await head.turn();
    head.near.write = () => new Promise(() => undefined);
    await entry.leave(new MeshnetError('CANCELLED'));
    await assert.rejects(tokens, MeshnetError);
  });

  it('allows the first token the time of its prompt, and each later one the idle time', async () => {
    const entry = await opened({ idleMs: 10, promptIdMs: 20 });
    const began = performance.now();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    tokens.catch(() => undefined);
    await head.turn();
    await assert.rejects(tokens, (err) => isMeshnetError(err, 'SEAM_TIMEOUT') && err.details['timeoutMs'] === 70);
    assert.ok(performance.now() - began >= 65);

    head = new Head();
    const later = await opened({ idleMs: 30, promptIdMs: 10_000 });
    const slow = tokensOf(later.turn(TURN, soon()));
    slow.catch(() => undefined);
    await head.turn();
    await head.send(loopFrame([1]));
    await assert.rejects(slow, (err) => isMeshnetError(err, 'SEAM_TIMEOUT') && err.details['timeoutMs'] === 30);
  });

  it('passes on what a stage says, with the stage that it blames', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    tokens.catch(() => undefined);
    await head.turn();
    await head.fail(new MeshnetError('DECODE_FAILED', 'the engine gave up', { details: { faultStage: 1 } }));
    await assert.rejects(tokens, code('DECODE_FAILED'));
  });

  it('takes an end without Close for a broken stream', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    tokens.catch(() => undefined);
    await head.turn();
    await head.vanish();
    await assert.rejects(tokens, code('STREAM_ENDED'));
  });

  for (const [what, frames] of BAD_FRAMES) {
    it(`ends a turn in which the head sends ${what}`, async () => {
      const entry = await opened();
      const tokens = tokensOf(entry.turn(TURN, soon()));
      tokens.catch(() => undefined);
      await head.turn();
      for (const frame of frames) {
        await head.send(frame);
      }
      await assert.rejects(tokens, code('PROTOCOL_VIOLATION'));
    });
  }

  it('takes as many alternatives as were asked for, in pairs and within the limit', async () => {
    const entry = await opened();
    const frames = Array.fromAsync(entry.turn({ ...TURN, logprobs: 2 }, soon()));
    frames.catch(() => undefined);
    await head.turn();
    const pair = { logprob: -1, topIds: [4, 5], topLogprobs: [-1, -2] };
    await head.send({ ...loopFrame([4]), logprobs: [pair] });
    await head.send({ ...loopFrame([5]), logprobs: [{ ...pair, topLogprobs: [-1] }] });
    await assert.rejects(frames, code('PROTOCOL_VIOLATION'));
  });

  it('closes in order: its Close, the frames on their way, the Close of the head', async () => {
    const entry = await opened();
    const tokens = tokensOf(entry.turn(TURN, soon()));
    await head.turn();
    await head.send(loopFrame([7], Finish.END));
    await tokens;
    const closing = entry.close(soon());
    assert.equal((await head.next())?.close?.nFrames, 2n);
    await head.close();
    await closing;
    assert.equal(await head.next(), undefined);
    await entry.close(soon());
  });

  it('cuts the stream when the head does not close in time, and never throws', async () => {
    const entry = await opened();
    await entry.close({ signal: AbortSignal.timeout(20) });
    await assert.rejects(head.next().then(() => head.next()), MeshnetError);
  });
});
