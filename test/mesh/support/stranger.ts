/** A peer that knows the protocols and keeps none of their rules. */
import { randomBytes } from 'node:crypto';
import type { Libp2p } from '@libp2p/interface';
import { multiaddr } from '@multiformats/multiaddr';
import { ERROR_CODES, type ErrorCode } from '../../../src/errors.ts';
import { decode, encode, type Init } from '../spec-client/codec.ts';
import { createHost } from '../spec-client/host.ts';
import { MessageStream } from '../spec-client/message-stream.ts';
import {
  AdmitReply, AdmitRequest, BridgeOpen, BridgeReady, Frame, Packet, Role, SeamEnd, type Admit, type Admitted, type Lane,
} from '../spec-client/messages.ts';

const SOON_MS = 15_000;

export type AdmitInit = Init<typeof Admit>;

/** How a question ended: with what was wanted, or with the code of the refusal. */
export interface Outcome {
  readonly code: ErrorCode | undefined;
  readonly admitted?: Admitted;
}

/** A seam that carries whatever packets its owner likes. */
export interface RawSeam {
  send(bytes: Uint8Array): Promise<void>;
  /** The code of the Error frame that the stage sends, or STREAM_ENDED when it says nothing. */
  refusal(): Promise<ErrorCode>;
  frame(init: Init<typeof Frame>): Uint8Array;
}

export class Stranger {
  readonly #host: Libp2p;
  readonly #address: string;

  private constructor(host: Libp2p, address: string) {
    this.#host = host;
    this.#address = address;
  }

  /** Towards one node. */
  static async of(address: string): Promise<Stranger> {
    return new Stranger(await createHost(), address);
  }

  get peerId(): string {
    return this.#host.peerId.toString();
  }

  async stop(): Promise<void> {
    await this.#host.stop();
  }

  /** Sends these bytes as they are; resolves when the other side has ended the stream. */
  async throwAt(protocol: string, bytes: Uint8Array): Promise<void> {
    const stream = await this.#host.dialProtocol(multiaddr(this.#address), protocol, { signal: AbortSignal.timeout(SOON_MS) });
    const ended = new Promise<void>((resolve) => {
      stream.addEventListener('close', () => resolve(), { once: true });
      stream.addEventListener('remoteCloseWrite', () => resolve(), { once: true });
    });
    stream.send(bytes);
    const late = AbortSignal.timeout(SOON_MS);
    await Promise.race([ended, new Promise((_, reject) => late.addEventListener('abort', () => reject(new Error(`${protocol} takes garbage`))))]);
    stream.abort(new Error('done'));
  }

  /** One Admit; the stream, and with it the lease, stays open until `leave`. */
  async admit(admit: AdmitInit): Promise<Outcome & { leave: () => void }> {
    const stream = await this.#open('/meshnet/admit/1');
    await stream.send(encode(AdmitRequest, { admit }), AbortSignal.timeout(SOON_MS));
    const reply = await stream.receive(AbortSignal.timeout(SOON_MS));
    const leave = (): void => stream.abort(new Error('done'));
    if (reply === undefined) {
      return { code: 'STREAM_ENDED', leave };
    }
    const { admitted, error } = decode(AdmitReply, reply);
    return error === undefined ? { code: undefined, ...(admitted === undefined ? {} : { admitted }), leave } : { code: nameOf(error.code), leave };
  }

  /** BridgeOpen and its answer, on a stream of its own. */
  async bridge(open: Init<typeof BridgeOpen>): Promise<{ code: ErrorCode | undefined; stream: MessageStream }> {
    const stream = await this.#open('/meshnet/seam/1');
    await stream.send(encode(BridgeOpen, open), AbortSignal.timeout(SOON_MS));
    const ready = await stream.receive(AbortSignal.timeout(SOON_MS));
    const error = ready === undefined ? undefined : decode(BridgeReady, ready).error;
    return { code: error === undefined ? undefined : nameOf(error.code), stream };
  }

  /** An entry seam as far as BridgeReady. */
  async entry(lane: Init<typeof Lane>, admitted: Admitted): Promise<RawSeam> {
    const ticket = admitted.tickets.find(({ end }) => end === SeamEnd.ENTRY)?.ticket ?? new Uint8Array();
    const { stream, code } = await this.bridge({ version: 1, lane, end: SeamEnd.ENTRY, ticket });
    if (code !== undefined) {
      throw new Error(`the bridge was refused: ${code}`);
    }
    return {
      send: (bytes) => stream.send(bytes, AbortSignal.timeout(SOON_MS)),
      frame: (init) => encode(Packet, { frames: [encode(Frame, { lane, ...init })] }),
      refusal: async () => {
        const signal = AbortSignal.timeout(SOON_MS);
        for (let packet = await received(stream, signal); packet !== undefined; packet = await received(stream, signal)) {
          const error = decode(Packet, packet).frames.map((raw) => decode(Frame, raw).error).find((each) => each !== undefined);
          if (error !== undefined) {
            return nameOf(error.code);
          }
        }
        return 'STREAM_ENDED';
      },
    };
  }

  async #open(protocol: string): Promise<MessageStream> {
    return new MessageStream(await this.#host.dialProtocol(multiaddr(this.#address), protocol, { signal: AbortSignal.timeout(SOON_MS) }));
  }
}

/** A reset is an end as well. */
async function received(stream: MessageStream, signal: AbortSignal): Promise<Uint8Array | undefined> {
  try {
    return await stream.receive(signal);
  } catch (err) {
    if (signal.aborted) {
      throw err;
    }
    return undefined;
  }
}

export const newLane = (stage: number): { session: Uint8Array; epoch: number; stage: number } =>
  ({ session: randomBytes(16), epoch: 1, stage });

/** Open as the entry seam has to begin. */
export const entryOpen = (modelDigest: Uint8Array, positions: number): Init<typeof Frame> => ({
  open: {
    version: 1, minVersion: 1, role: Role.ENTRY, attempt: 1, modelDigest, nextSeq: 1n,
    limits: { maxPacketBytes: 1024 * 1024, maxFramePayloadBytes: 256 * 1024, maxChunkTokens: 0, maxPositions: positions },
  },
});

function nameOf(wire: number): ErrorCode {
  const found = Object.entries(ERROR_CODES).find(([, entry]) => entry.wire === wire);
  if (found === undefined) {
    throw new Error(`no code has the number ${wire}`);
  }
  return found[0] as ErrorCode;
}
