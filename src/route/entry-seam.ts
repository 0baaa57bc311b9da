import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { isMeshnetError, MeshnetError, toMeshnetError } from '../errors.ts';
import type { LaneKey } from '../domain/lane.ts';
import { LIMITS } from '../domain/limits.ts';
import { SeamEnd, type FrameInit } from '../domain/seam-end.ts';
import { fromWireError } from '../domain/wire-error.ts';
import { within } from '../net/wait.ts';
import type { PathKind } from '../proto/peer_pb.js';
import {
  CancelSchema, Finish, LimitsSchema, OpenSchema, Phase, Role, TurnSchema, TurnTokensSchema, type Frame,
} from '../proto/seam_pb.js';
import type { AbortOptions, PacketDuplex } from '../worker/packet-duplex.ts';
import { checkLoopFrame } from './loop-frame.ts';

export interface EntrySeamInit {
  lane: LaneKey;
  modelDigest: Uint8Array;
  /** Positions of the session. */
  positions: number;
  /** For Open to be answered. @default 10_000 ms */
  handshakeMs?: number;
  /** Between two frames while a turn runs, and for a packet to be taken. @default 60_000 ms */
  idleMs?: number;
  /** Added to `idleMs` for each id of the prompt, until the first frame. @default 50 ms */
  promptIdMs?: number;
  /** For a Cancel to be taken; the lease frees the stages anyway. @default 1000 ms */
  cancelMs?: number;
}

export type TurnInit = Omit<MessageInitShape<typeof TurnSchema>, '$typeName' | 'nTokens' | 'turn' | 'maxTokens' | 'logprobs'> &
  { readonly turn: number; readonly ids: readonly number[]; readonly maxTokens: number; readonly logprobs: number };

interface RunningTurn {
  readonly turn: number;
  cancelling?: Promise<void>;
}

/** The gateway's end of the entry seam: turns in, loop frames out (SPEC.md §7). */
export class EntrySeam {
  readonly #stream: PacketDuplex;
  readonly #end: SeamEnd;
  readonly #init: Required<EntrySeamInit>;
  readonly #frames: AsyncGenerator<Frame>;
  #running: RunningTurn | undefined;
  #closed = false;

  constructor(stream: PacketDuplex, init: EntrySeamInit) {
    this.#stream = stream;
    this.#init = { handshakeMs: 10_000, idleMs: 60_000, promptIdMs: 50, cancelMs: 1000, ...init };
    this.#end = new SeamEnd(init.lane);
    this.#frames = this.#readFrames();
  }

  /** How its packets travel. */
  get path(): PathKind {
    return this.#stream.path;
  }

  /**
   * @throws {MeshnetError} SEAM_TIMEOUT, STREAM_ENDED, or what the head answered
   */
  async open(options: AbortOptions): Promise<void> {
    const { modelDigest, positions, handshakeMs } = this.#init;
    await this.#write(this.#end.encodeUnsequenced({
      open: create(OpenSchema, {
        version: 1, minVersion: 1, role: Role.ENTRY, attempt: 1, modelDigest, nextSeq: this.#end.nextSeq,
        limits: create(LimitsSchema, {
          maxPacketBytes: LIMITS.packetBytes, maxFramePayloadBytes: LIMITS.framePayloadBytes, maxPositions: positions,
        }),
      }),
    }), options);
    const frame = await this.#next(handshakeMs, options);
    if (frame.opened === undefined) {
      throw new MeshnetError('MALFORMED', 'the head answered Open with something else');
    }
  }

  /**
   * Runs one turn: yields the loop frames up to and with the one that has `finish`. Leaving the loop early, or the signal,
   * cancels the turn at the head; the caller then closes or abandons the seam.
   *
   * @throws {MeshnetError} SEAM_TIMEOUT, STREAM_ENDED, CANCELLED, PROTOCOL_VIOLATION, or what a stage answered
   */
  async * turn(init: TurnInit, options: AbortOptions): AsyncGenerator<Frame> {
    const { ids, ...fields } = init;
    const { idleMs, promptIdMs } = this.#init;
    const running: RunningTurn = { turn: init.turn };
    this.#running = running;
    let finished = false;
    try {
      await this.#send({ turn: create(TurnSchema, { ...fields, nTokens: ids.length }) }, options);
      for (let at = 0; at < ids.length; at += LIMITS.tokensPerPiece) {
        const piece = ids.slice(at, at + LIMITS.tokensPerPiece);
        const last = at + piece.length === ids.length;
        await this.#send({ turnTokens: create(TurnTokensSchema, { turn: init.turn, ids: piece, last }) }, options);
      }
      let received = 0;
      while (!finished) {
        const frame = await this.#next(received === 0 ? idleMs + promptIdMs * ids.length : idleMs, options);
        checkLoopFrame(frame, init, received);
        received += frame.tokens.length;
        finished = frame.finish !== Finish.UNSPECIFIED;
        yield frame;
      }
    } finally {
      if (!finished) {
        await this.#cancel(running);
      }
      if (this.#running === running) {
        this.#running = undefined;
      }
    }
  }

  /** The orderly end: Close both ways. Past the deadline the stream is cut. Never throws. */
  async close(options: AbortOptions): Promise<void> {
    if (this.#closed) {
      return;
    }
    this.#closed = true;
    try {
      await this.#write(this.#end.encodeClose(), options);
      while ((await this.#next(this.#init.handshakeMs, options)).close === undefined) {
        // Loop frames that were on their way.
      }
      await this.#stream.close(options);
    } catch (err) {
      this.abort(toMeshnetError(err));
    }
  }

  /** The quick end: cancels the turn that runs, if one does, and drops the stream. Never throws. */
  async leave(err: MeshnetError): Promise<void> {
    if (this.#running !== undefined) {
      await this.#cancel(this.#running);
    }
    this.abort(err);
  }

  abort(err: MeshnetError): void {
    this.#closed = true;
    this.#stream.abort(err);
  }

  #cancel(running: RunningTurn): Promise<void> {
    return running.cancelling ??= this.#sendCancel(running.turn);
  }

  async #sendCancel(turn: number): Promise<void> {
    if (this.#closed) {
      return;
    }
    try {
      await this.#send({ cancel: create(CancelSchema, { turn }) }, { signal: AbortSignal.timeout(this.#init.cancelMs) });
    } catch (err) {
      this.abort(toMeshnetError(err));
    }
  }

  async #send(init: FrameInit, options: AbortOptions): Promise<void> {
    await this.#write(this.#end.encode(init), options);
  }

  /** A head that takes nothing is as silent as one that sends nothing. */
  async #write(packet: Uint8Array, { signal }: AbortOptions): Promise<void> {
    const { idleMs } = this.#init;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(idleMs)]);
    await this.#timed(this.#stream.write(packet, { signal: limit }), 'took nothing', { signal, timeoutMs: idleMs });
  }

  async #next(timeoutMs: number, { signal }: AbortOptions): Promise<Frame> {
    const next = await this.#timed(this.#frames.next(), 'sent nothing', { signal, timeoutMs });
    if (next.done === true) {
      throw new MeshnetError('STREAM_ENDED', 'the entry seam ended without a Close');
    }
    return next.value;
  }

  async #timed<T>(work: Promise<T>, silence: string, options: AbortOptions & { timeoutMs: number }): Promise<T> {
    try {
      return await within(work, 'the head', options);
    } catch (err) {
      const { timeoutMs, signal } = options;
      if (!isMeshnetError(err, 'DEADLINE_EXCEEDED') || signal.aborted) {
        throw err;
      }
      throw new MeshnetError('SEAM_TIMEOUT', `the head ${silence} for ${timeoutMs} ms`, {
        cause: err, details: { timeoutMs, stage: 0 },
      });
    }
  }

  async * #readFrames(): AsyncGenerator<Frame> {
    for await (const packet of this.#stream.read()) {
      const frame = this.#end.accept(packet);
      if (frame?.error !== undefined) {
        throw fromWireError(frame.error);
      }
      if (frame !== undefined && (frame.opened !== undefined || frame.close !== undefined || frame.phase !== Phase.UNSPECIFIED)) {
        yield frame;
      }
      const ack = this.#end.encodeAckIfDue();
      if (ack !== undefined) {
        await this.#stream.write(ack, { signal: AbortSignal.timeout(this.#init.idleMs) });
      }
    }
  }
}
