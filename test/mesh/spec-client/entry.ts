/** The entry seam: Open, one direction's bookkeeping on each side, and the orderly Close. */
import { createHash } from 'node:crypto';
import type { Libp2p } from '@libp2p/interface';
import { decode, encode, type Init } from './codec.ts';
import { ensure, fromWire } from './errors.ts';
import { openStream } from './host.ts';
import type { Lease } from './lease.ts';
import type { MessageStream } from './message-stream.ts';
import { BridgeOpen, BridgeReady, Frame, Packet, Role, SeamEnd } from './messages.ts';

const ACK_EVERY = 16;

export class EntrySeam {
  readonly #stream: MessageStream;
  readonly #lease: Lease;
  readonly #sent = createHash('sha256');
  readonly #received = createHash('sha256');
  #nSent = 0n;
  #nReceived = 0n;
  #acked = 0n;
  #ackedByPeer = 0n;

  private constructor(stream: MessageStream, lease: Lease) {
    this.#stream = stream;
    this.#lease = lease;
  }

  static async open(host: Libp2p, head: Lease, modelDigest: Uint8Array, signal: AbortSignal): Promise<EntrySeam> {
    const stream = await openStream(host, head.shard.peer, '/meshnet/seam/1', signal);
    const ticket = head.ticket(SeamEnd.ENTRY);
    await stream.send(encode(BridgeOpen, { version: 1, lane: head.lane, end: SeamEnd.ENTRY, ticket }), signal);
    const ready = await stream.receive(signal);
    ensure(ready !== undefined, 'the bridge closed without an answer');
    const { error } = decode(BridgeReady, ready);
    if (error !== undefined) {
      throw fromWire(error);
    }
    const seam = new EntrySeam(stream, head);
    await seam.#open(modelDigest, signal);
    return seam;
  }

  async #open(modelDigest: Uint8Array, signal: AbortSignal): Promise<void> {
    const { positions, maxChunkTokens } = this.#lease.admitted;
    const limits = {
      maxPacketBytes: 1024 * 1024,
      maxFramePayloadBytes: 256 * 1024,
      maxChunkTokens,
      maxPositions: positions,
    };
    const open = { version: 1, minVersion: 1, role: Role.ENTRY, attempt: 1, modelDigest, limits, nextSeq: 1n };
    await this.#put({ open }, signal);
    const { opened } = await this.#next(signal);
    ensure(opened !== undefined, 'the first frame is not Opened');
    ensure(opened.version === 1 && opened.attempt === 1 && opened.nextSeq === 1n, 'Opened does not answer this Open');
    ensure(!opened.packing, 'packing was not offered');
    const { layerFirst, layerLast } = this.#lease.shard.advertisement;
    ensure(opened.layerFirst === layerFirst && opened.layerLast === layerLast, 'the listener serves other layers');
  }

  /** Sends a frame that counts. */
  async send(frame: Init<typeof Frame>, signal: AbortSignal): Promise<void> {
    this.#nSent += 1n;
    const raw = await this.#put({ ...frame, seq: this.#nSent, ack: this.#nReceived }, signal);
    this.#sent.update(raw);
    this.#acked = this.#nReceived;
  }

  /** The next frame that counts; throws what an Error frame says. */
  async receive(signal: AbortSignal): Promise<Frame> {
    for (;;) {
      const frame = await this.#next(signal);
      if (frame.seq > 0n) {
        return frame;
      }
    }
  }

  /** Both Closes, each held against what this end has counted, and the end of the stream. */
  async close(signal: AbortSignal): Promise<void> {
    const sent = { nFrames: this.#nSent, digest: this.#sent.copy().digest() };
    await this.send({ close: sent }, signal);
    for (;;) {
      const before = { nFrames: this.#nReceived, digest: this.#received.copy().digest() };
      const { close } = await this.receive(signal);
      if (close !== undefined) {
        ensure(close.nFrames === before.nFrames, `Close counts ${close.nFrames} frames, here came ${before.nFrames}`);
        ensure(before.digest.equals(close.digest), 'the digest of Close differs');
        break;
      }
    }
    ensure(this.#ackedByPeer <= this.#nSent, 'an ack of what was never sent');
    await this.#stream.close(signal);
    ensure((await this.#stream.receive(signal)) === undefined, 'something came after Close');
  }

  abort(reason: Error): void {
    this.#stream.abort(reason);
  }

  async #put(frame: Init<typeof Frame>, signal: AbortSignal): Promise<Uint8Array> {
    const raw = encode(Frame, { lane: this.#lease.lane, ...frame });
    await this.#stream.send(encode(Packet, { frames: [raw] }), signal);
    return raw;
  }

  async #next(signal: AbortSignal): Promise<Frame> {
    const packet = await this.#stream.receive(signal);
    ensure(packet !== undefined, 'the entry seam ended without Close');
    const { frames } = decode(Packet, packet);
    const [raw] = frames;
    ensure(raw !== undefined && frames.length === 1, 'a packet does not hold one frame');
    const frame = decode(Frame, raw);
    if (frame.error !== undefined) {
      throw fromWire(frame.error);
    }
    const { lane } = this.#lease;
    ensure(Buffer.from(frame.lane?.session ?? []).equals(lane.session ?? Buffer.alloc(0)), 'a frame of another session');
    ensure(frame.lane?.epoch === lane.epoch && frame.lane?.stage === (lane.stage ?? 0), 'a frame of another lane');
    ensure(frame.ack <= this.#nSent && (frame.ack >= this.#ackedByPeer || frame.ack === 0n), 'a wrong ack');
    this.#ackedByPeer = frame.ack > this.#ackedByPeer ? frame.ack : this.#ackedByPeer;
    if (frame.seq > 0n) {
      ensure(frame.seq === this.#nReceived + 1n, `seq ${frame.seq} after ${this.#nReceived}`);
      this.#nReceived = frame.seq;
      this.#received.update(raw);
      if (this.#nReceived - this.#acked >= ACK_EVERY) {
        this.#acked = this.#nReceived;
        await this.#put({ ack: this.#acked }, signal);
      }
    }
    return frame;
  }

  /** Highest seq of this end that the other has accepted. */
  get ackedByPeer(): bigint {
    return this.#ackedByPeer;
  }

  get nSent(): bigint {
    return this.#nSent;
  }
}
