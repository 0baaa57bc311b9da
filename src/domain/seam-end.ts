import { createHash } from 'node:crypto';
import { create, fromBinary, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { MeshnetError } from '../errors.ts';
import { CloseSchema, FrameSchema, LaneSchema, Phase, type Frame } from '../proto/seam_pb.js';
import type { LaneKey } from './lane.ts';
import { LIMITS } from './limits.ts';

/** What the caller sets of a frame; lane, seq and ack are filled in here. */
export type FrameInit = Omit<MessageInitShape<typeof FrameSchema>, 'lane' | 'seq' | 'ack' | '$typeName'>;

/** A pure ack is due after this many sequenced frames (SPEC.md §6). */
const ACK_EVERY = 16;

/**
 * One end of a seam without its stream: sequence numbers, acks and the rolling digests of both directions
 * (SPEC.md §6, §7). Bytes in, bytes out; it waits for nothing.
 */
export class SeamEnd {
  readonly #lane: LaneKey;
  readonly #sent = createHash('sha256');
  readonly #received = createHash('sha256');
  #sentCount = 0n;
  #receivedCount = 0n;
  #unacked = 0;
  #closeReceived = false;

  constructor(lane: LaneKey) {
    this.#lane = lane;
  }

  /** The seq that this end expects next. */
  get nextSeq(): bigint {
    return this.#receivedCount + 1n;
  }

  /** A packet with one frame that carries no seq: Open, Credit, Error. */
  encodeUnsequenced(init: FrameInit): Uint8Array {
    return packetOf(this.#encode(init, 0n));
  }

  /** A packet with the next sequenced frame. */
  encode(init: FrameInit): Uint8Array {
    const bytes = this.#encode(init, this.#sentCount + 1n);
    if (init.close == null) {
      this.#sent.update(bytes);
    }
    this.#sentCount += 1n;
    return packetOf(bytes);
  }

  /** The orderly end of this direction: what was sent before it, counted and hashed. */
  encodeClose(): Uint8Array {
    const close = create(CloseSchema, { nFrames: this.#sentCount, digest: this.#sent.copy().digest() });
    return this.encode({ close });
  }

  /** An ack alone, when one is due. */
  encodeAckIfDue(): Uint8Array | undefined {
    return this.#unacked >= ACK_EVERY ? this.encodeUnsequenced({}) : undefined;
  }

  /**
   * The frame of a packet, or nothing when it is a duplicate.
   *
   * @throws {MeshnetError} FRAME_TOO_LARGE, MALFORMED, LANE_NOT_OPEN, SEQ_GAP, DIGEST_MISMATCH: the stream is over
   */
  accept(packet: Uint8Array): Frame | undefined {
    const bytes = frameOf(packet);
    const frame = decodeFrame(bytes);
    this.#checkLane(frame);
    if (isSequenced(frame) !== (frame.seq !== 0n)) {
      throw new MeshnetError('MALFORMED', 'seq does not fit the kind of frame', { details: { seq: Number(frame.seq) } });
    }
    return frame.seq === 0n || this.#advance(frame, bytes) ? frame : undefined;
  }

  #encode(init: FrameInit, seq: bigint): Uint8Array {
    this.#unacked = 0;
    const { session, epoch, stage } = this.#lane;
    return toBinary(FrameSchema, create(FrameSchema, {
      ...init, lane: create(LaneSchema, { session, epoch, stage }), seq, ack: this.#receivedCount,
    }));
  }

  /** Whether the frame is new. */
  #advance(frame: Frame, bytes: Uint8Array): boolean {
    this.#unacked++;
    if (frame.seq < this.nextSeq) {
      return false;
    }
    if (frame.seq > this.nextSeq) {
      throw new MeshnetError('SEQ_GAP', undefined, {
        details: { expected: Number(this.nextSeq), got: Number(frame.seq) },
      });
    }
    if (this.#closeReceived) {
      throw new MeshnetError('MALFORMED', 'a frame follows Close', { details: { seq: Number(frame.seq) } });
    }
    if (frame.close !== undefined) {
      this.#checkDigest(frame.close.nFrames, frame.close.digest);
      this.#closeReceived = true;
    } else {
      this.#received.update(bytes);
    }
    this.#receivedCount += 1n;
    return true;
  }

  #checkLane(frame: Frame): void {
    const lane = frame.lane;
    const same = lane !== undefined && lane.epoch === this.#lane.epoch && lane.stage === this.#lane.stage &&
      Buffer.compare(lane.session, this.#lane.session) === 0;
    if (!same) {
      throw new MeshnetError('LANE_NOT_OPEN', 'a frame names another lane than its stream', {
        details: { stage: lane?.stage },
      });
    }
  }

  #checkDigest(nFrames: bigint, digest: Uint8Array): void {
    if (nFrames !== this.#receivedCount || Buffer.compare(digest, this.#received.copy().digest()) !== 0) {
      throw new MeshnetError('DIGEST_MISMATCH', 'what was received is not what the other end says it sent', {
        details: { sent: Number(nFrames), received: Number(this.#receivedCount) },
      });
    }
  }
}

/** All but Open, Opened, Credit, Error and an ack alone (SPEC.md §6). */
function isSequenced(frame: Frame): boolean {
  return frame.phase !== Phase.UNSPECIFIED || frame.turn !== undefined || frame.turnTokens !== undefined ||
    frame.cancel !== undefined || frame.close !== undefined;
}

function packetOf(frame: Uint8Array): Uint8Array {
  return new BinaryWriter().tag(1, WireType.LengthDelimited).bytes(frame).finish();
}

/** The one encoded frame of an encoded Packet, without a copy: this end never offers packing. */
function frameOf(packet: Uint8Array): Uint8Array {
  if (packet.byteLength > LIMITS.packetBytes) {
    throw new MeshnetError('FRAME_TOO_LARGE', undefined, {
      details: { bytes: packet.byteLength, limit: LIMITS.packetBytes },
    });
  }
  const frames: Uint8Array[] = [];
  try {
    const reader = new BinaryReader(packet);
    while (reader.pos < reader.len && frames.length < 2) {
      const [field, wireType] = reader.tag();
      if (field === 1 && wireType === WireType.LengthDelimited) {
        frames.push(reader.bytes());
      } else {
        reader.skip(wireType, field);
      }
    }
  } catch (cause) {
    throw new MeshnetError('MALFORMED', 'a packet could not be decoded', { cause });
  }
  const [only] = frames;
  if (only === undefined || frames.length > 1) {
    throw new MeshnetError('MALFORMED', 'a packet does not hold one frame, and packing was not agreed');
  }
  return only;
}

function decodeFrame(bytes: Uint8Array): Frame {
  try {
    return fromBinary(FrameSchema, bytes);
  } catch (cause) {
    throw new MeshnetError('MALFORMED', 'a frame could not be decoded', { cause });
  }
}
