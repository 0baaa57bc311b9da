import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { isMeshnetError, MeshnetError } from '../errors.ts';
import type { LaneKey } from '../domain/lane.ts';
import { LIMITS } from '../domain/limits.ts';
import { SeamEnd, type FrameInit } from '../domain/seam-end.ts';
import { fromWireError } from '../domain/wire-error.ts';
import { within } from '../net/wait.ts';
import { CancelSchema, Finish, LimitsSchema, OpenSchema, Phase, Role, TurnSchema, TurnTokensSchema, type Frame } from '../proto/seam_pb.js';
import type { AbortOptions, PacketDuplex } from '../worker/packet-duplex.ts';

export interface EntrySeamInit {
  lane: LaneKey;
  modelDigest: Uint8Array;
  /** Positions of the session. */
  positions: number;
  /** For Open to be answered. @default 10_000 ms */
  handshakeMs?: number;
  /** Between two frames while a turn runs. @default 60_000 ms */
  idleMs?: number;
}

export type TurnInit = Omit<MessageInitShape<typeof TurnSchema>, '$typeName' | 'nTokens' | 'turn'> &
  { readonly turn: number; readonly ids: readonly number[] };

/** The gateway's end of the entry seam: turns in, loop frames out (SPEC.md §7). */
export class EntrySeam {
  readonly #stream: PacketDuplex;
  readonly #end: SeamEnd;
  readonly #init: EntrySeamInit;
  readonly #frames: AsyncGenerator<Frame>;
  #closed = false;

  constructor(stream: PacketDuplex, init: EntrySeamInit) {
    this.#stream = stream;
    this.#init = init;
    this.#end = new SeamEnd(init.lane);
    this.#frames = this.#readFrames();
  }

  /**
   * @throws {MeshnetError} SEAM_TIMEOUT, STREAM_ENDED, or what the head answered
   */
  async open(options: AbortOptions): Promise<void> {
    await this.#stream.write(this.#end.encodeUnsequenced({
      open: create(OpenSchema, {
        version: 1, minVersion: 1, role: Role.ENTRY, attempt: 1, modelDigest: this.#init.modelDigest, nextSeq: this.#end.nextSeq,
        limits: create(LimitsSchema, {
          maxPacketBytes: LIMITS.packetBytes, maxFramePayloadBytes: LIMITS.framePayloadBytes, maxPositions: this.#init.positions,
        }),
      }),
    }), options);
    const frame = await this.#next(this.#init.handshakeMs ?? 10_000, options);
    if (frame.opened === undefined) {
      throw new MeshnetError('MALFORMED', 'the head answered Open with something else');
    }
  }

  /**
   * Runs one turn: yields the loop frames up to and with the one that has `finish`. Leaving the loop early, or the signal, cancels
   * the turn at the head; the caller then closes or abandons the seam.
   *
   * @throws {MeshnetError} SEAM_TIMEOUT, STREAM_ENDED, CANCELLED, or what a stage answered
   */
  async * turn(init: TurnInit, options: AbortOptions): AsyncGenerator<Frame> {
    const { ids, ...fields } = init;
    await this.#send({ turn: create(TurnSchema, { ...fields, nTokens: ids.length }) }, options);
    for (let at = 0; at < ids.length; at += LIMITS.tokensPerPiece) {
      const piece = ids.slice(at, at + LIMITS.tokensPerPiece);
      const last = at + piece.length === ids.length;
      await this.#send({ turnTokens: create(TurnTokensSchema, { turn: init.turn, ids: piece, last }) }, options);
    }
    let finished = false;
    try {
      while (!finished) {
        const frame = await this.#next(this.#init.idleMs ?? 60_000, options);
        finished = frame.finish !== Finish.UNSPECIFIED;
        yield frame;
      }
    } finally {
      if (!finished) {
        await this.#cancel(init.turn);
      }
    }
  }

  /** The orderly end: Close both ways. Past the deadline the stream is cut. */
  async close(options: AbortOptions): Promise<void> {
    if (this.#closed) {
      return;
    }
    this.#closed = true;
    try {
      await this.#stream.write(this.#end.encodeClose(), options);
      while ((await this.#next(this.#init.handshakeMs ?? 10_000, options)).close === undefined) {
        // Loop frames that were on their way.
      }
      await this.#stream.close(options);
    } catch (err) {
      this.abort(err instanceof Error ? err : new MeshnetError('INTERNAL'));
    }
  }

  abort(err: Error): void {
    this.#closed = true;
    this.#stream.abort(err);
  }

  async #cancel(turn: number): Promise<void> {
    if (!this.#closed) {
      const signal = AbortSignal.timeout(this.#init.handshakeMs ?? 10_000);
      await this.#send({ cancel: create(CancelSchema, { turn }) }, { signal }).catch((err: Error) => { this.abort(err); });
    }
  }

  async #send(init: FrameInit, options: AbortOptions): Promise<void> {
    await this.#stream.write(this.#end.encode(init), options);
  }

  async #next(timeoutMs: number, options: AbortOptions): Promise<Frame> {
    const next = await within(this.#frames.next(), 'the head', { signal: options.signal, timeoutMs }).catch((err: unknown) => {
      throw isMeshnetError(err, 'DEADLINE_EXCEEDED')
        ? new MeshnetError('SEAM_TIMEOUT', `the head sent nothing for ${timeoutMs} ms`, { cause: err, details: { timeoutMs, stage: 0 } })
        : err;
    });
    if (next.done === true) {
      throw new MeshnetError('STREAM_ENDED', 'the entry seam ended without a Close');
    }
    return next.value;
  }

  async * #readFrames(): AsyncGenerator<Frame> {
    for await (const packet of this.#stream.read()) {
      for (const frame of this.#end.accept(packet)) {
        if (frame.error !== undefined) {
          throw fromWireError(frame.error);
        }
        if (frame.opened !== undefined || frame.close !== undefined || frame.phase !== Phase.UNSPECIFIED) {
          yield frame;
        }
      }
      const ack = this.#end.encodeAckIfDue();
      if (ack !== undefined) {
        await this.#stream.write(ack, { signal: AbortSignal.timeout(this.#init.idleMs ?? 60_000) });
      }
    }
  }
}
