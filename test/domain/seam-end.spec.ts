import assert from 'node:assert/strict';
import { create, toBinary } from '@bufbuild/protobuf';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import fc from 'fast-check';
import { LIMITS } from '../../src/domain/limits.ts';
import { SeamEnd } from '../../src/domain/seam-end.ts';
import { isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { CreditSchema, FrameSchema, OpenSchema, Phase, TurnTokensSchema } from '../../src/proto/seam_pb.js';

const LANE = { session: new Uint8Array(16).fill(3), epoch: 1, stage: 0 };
const loop = (pos: number): { phase: Phase; pos: number; nTokens: number; tokens: number[] } =>
  ({ phase: Phase.LOOP, pos, nTokens: 1, tokens: [pos] });
const code = (wanted: ErrorCode) => (err: unknown): boolean => isMeshnetError(err, wanted);

function frameBytes(packet: Uint8Array): Uint8Array {
  const reader = new BinaryReader(packet);
  reader.tag();
  return reader.bytes();
}

function packet(...frames: Uint8Array[]): Uint8Array {
  const writer = new BinaryWriter();
  for (const frame of frames) {
    writer.tag(1, WireType.LengthDelimited).bytes(frame);
  }
  return writer.finish();
}

describe('domain/seam-end', () => {
  let ours: SeamEnd;
  let theirs: SeamEnd;

  beforeEach(() => {
    ours = new SeamEnd(LANE);
    theirs = new SeamEnd({ ...LANE });
  });

  it('numbers frames from 1 without gaps, and gives Open and acks none', () => {
    assert.equal(ours.accept(theirs.encodeUnsequenced({ open: create(OpenSchema) }))?.seq, 0n);
    assert.equal(ours.accept(theirs.encode(loop(1)))?.seq, 1n);
    assert.equal(ours.accept(theirs.encodeUnsequenced({}))?.seq, 0n);
    assert.equal(ours.accept(theirs.encode(loop(2)))?.seq, 2n);
    assert.equal(ours.nextSeq, 3n);
  });

  it('takes a frame that is sent again once', () => {
    const first = theirs.encode(loop(1));
    assert.equal(ours.accept(first)?.pos, 1);
    assert.equal(ours.accept(first), undefined);
    assert.equal(ours.nextSeq, 2n);
  });

  it('refuses a frame that skips one, naming both', () => {
    theirs.encode(loop(1));
    assert.throws(() => ours.accept(theirs.encode(loop(2))), (err) => isMeshnetError(err, 'SEQ_GAP') &&
      assert.deepEqual(err.details, { expected: 1, got: 2 }) === undefined);
  });

  it('refuses a frame of another lane, epoch or stage', () => {
    for (const other of [{ session: new Uint8Array(16).fill(4) }, { epoch: 2 }, { stage: 1 }]) {
      const stranger = new SeamEnd({ ...LANE, ...other });
      assert.throws(() => ours.accept(stranger.encode(loop(1))), code('LANE_NOT_OPEN'));
    }
    assert.throws(() => ours.accept(packet(toBinary(FrameSchema, create(FrameSchema, { seq: 1n })))), code('LANE_NOT_OPEN'));
  });

  it('refuses a loop frame that would pass beside the digest, and a seq on what has none', () => {
    assert.throws(() => ours.accept(theirs.encodeUnsequenced(loop(1))), code('MALFORMED'));
    assert.throws(() => ours.accept(theirs.encode({ credit: create(CreditSchema, { bytes: 1n }) })), code('MALFORMED'));
  });

  it('refuses a packet above the limit before it looks inside', () => {
    assert.throws(() => ours.accept(new Uint8Array(LIMITS.packetBytes + 1)), code('FRAME_TOO_LARGE'));
  });

  it('refuses a packet of no frame or of two: packing is not agreed', () => {
    const one = frameBytes(theirs.encode(loop(1)));
    const two = frameBytes(theirs.encode(loop(2)));
    assert.throws(() => ours.accept(packet()), code('MALFORMED'));
    assert.throws(() => ours.accept(packet(one, two)), code('MALFORMED'));
  });

  it('refuses a Close that counts or hashes something else', () => {
    const liar = new SeamEnd(LANE);
    ours.accept(theirs.encode(loop(1)));
    liar.encode(loop(9));
    assert.throws(() => ours.accept(liar.encodeClose()), code('DIGEST_MISMATCH'));
    const counter = new SeamEnd(LANE);
    assert.throws(() => new SeamEnd(LANE).accept(counter.encode({ close: { nFrames: 1n, digest: new Uint8Array(32) } })),
      code('DIGEST_MISMATCH'));
  });

  it('refuses what follows a Close', () => {
    ours.accept(theirs.encodeClose());
    assert.throws(() => ours.accept(theirs.encode(loop(1))), code('MALFORMED'));
  });

  it('owes an ack alone after sixteen frames, and not when another frame has carried it', () => {
    for (let i = 1; i <= 15; i++) {
      ours.accept(theirs.encode(loop(i)));
      assert.equal(ours.encodeAckIfDue(), undefined);
    }
    ours.accept(theirs.encode(loop(16)));
    const ack = ours.encodeAckIfDue();
    assert.equal(ack === undefined ? 0n : theirs.accept(ack)?.ack, 16n);
    assert.equal(ours.encodeAckIfDue(), undefined);
  });

  it('agrees on the digest whatever is sent, resent and acknowledged', () => {
    const step = fc.record({ tokens: fc.array(fc.nat(50_000), { maxLength: 40 }), again: fc.boolean(), ack: fc.boolean() });
    fc.assert(fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
      const [from, to] = [new SeamEnd(LANE), new SeamEnd(LANE)];
      for (const { tokens, again, ack } of steps) {
        const bytes = from.encode({ turnTokens: create(TurnTokensSchema, { turn: 1, ids: tokens }) });
        assert.deepEqual(to.accept(bytes)?.turnTokens?.ids, tokens);
        if (again) {
          assert.equal(to.accept(bytes), undefined);
        }
        if (ack) {
          from.accept(to.encodeUnsequenced({}));
        }
      }
      assert.equal(to.accept(from.encodeClose())?.close?.nFrames, BigInt(steps.length));
    }));
  });

  it('answers any bytes with a frame or a typed error', () => {
    fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      for (const candidate of [bytes, packet(bytes)]) {
        try {
          new SeamEnd(LANE).accept(candidate);
        } catch (err) {
          assert.ok(isMeshnetError(err), String(err));
        }
      }
    }));
  });
});
