import type { MessageStream, StreamMuxerFactory } from '@libp2p/interface';
import { noise } from '@chainsafe/libp2p-noise';
import { yamux, type YamuxMuxerInit } from '@libp2p/yamux';
import { KAD_PROTOCOL } from './protocols.ts';

/**
 * libp2p 3.3 reads the length of a message byte by byte and never gives up on one that does not end: 64 KiB of 0x80 from a
 * stranger stop the event loop for the better part of a second, before any handshake. So every place where libp2p itself
 * reads length-prefixed messages has its bytes looked at first, and is closed when a length is longer than any may be.
 * Our own protocols bound their lengths themselves.
 */
const HEADER = '/multistream/1.0.0';
/** A protocol name, and the length before it; as multistream-select says. */
const NAME_BYTES = 1024;
const NAME_LENGTH_BYTES = 2;
/** Of the length of a message of the protocols below. */
const MESSAGE_LENGTH_BYTES = 4;
/** Protocols of libp2p that go on with length-prefixed messages. */
const FRAMED = new Set([KAD_PROTOCOL, '/ipfs/id/1.0.0', '/ipfs/id/push/1.0.0']);

type Chunk = Uint8Array | { subarray(): Uint8Array };
/** Every stream and connection of libp2p, as its transport sees it. */
interface Receiver extends Pick<MessageStream, 'abort'> {
  onData(data: Chunk): void;
  /** What has arrived and nobody has taken. */
  readonly readBuffer: { subarray(): Uint8Array };
}

/** Whether a name that was read ends the negotiation. */
export type IsFinal = (protocol: string) => boolean;

/** Follows negotiation, then what comes after it. Gives false once, at the first length that cannot be meant. */
export class FrameParser {
  readonly #isFinal: IsFinal;
  #mode: 'names' | 'messages' | 'anything' = 'names';
  #length = 0;
  #lengthBytes = 0;
  /** Of the present message, still to come; undefined while its length is read. */
  #missing: number | undefined;
  #name: number[] = [];

  constructor(isFinal: IsFinal) {
    this.#isFinal = isFinal;
  }

  /** Whether there is nothing more to look at. */
  get done(): boolean {
    return this.#mode === 'anything';
  }

  take(bytes: Uint8Array): boolean {
    for (let at = 0; at < bytes.byteLength && !this.done;) {
      if (this.#missing === undefined) {
        if (!this.#takeLength(bytes[at++] as number)) {
          return false;
        }
      } else {
        const end = Math.min(at + this.#missing, bytes.byteLength);
        if (this.#mode === 'names') {
          this.#name.push(...bytes.subarray(at, end));
        }
        this.#missing -= end - at;
        at = end;
      }
      if (this.#missing === 0) {
        this.#endOfMessage();
      }
    }
    return true;
  }

  #takeLength(byte: number): boolean {
    this.#length += (byte & 0x7f) * 2 ** (7 * this.#lengthBytes++);
    if (byte < 0x80) {
      this.#missing = this.#length;
      return this.#mode !== 'names' || this.#length <= NAME_BYTES;
    }
    return this.#lengthBytes < (this.#mode === 'names' ? NAME_LENGTH_BYTES : MESSAGE_LENGTH_BYTES);
  }

  #endOfMessage(): void {
    if (this.#mode === 'names') {
      const name = String.fromCharCode(...this.#name).replace(/\n$/, '');
      this.#name = [];
      if (name !== HEADER && this.#isFinal(name)) {
        this.#mode = FRAMED.has(name) ? 'messages' : 'anything';
      }
    }
    [this.#length, this.#lengthBytes, this.#missing] = [0, 0, undefined];
  }
}

/** Looks at what arrives before libp2p does. REQUIRES: nobody has read from it yet. */
export function guard(target: unknown, isFinal: IsFinal): void {
  const receiver = target as Receiver;
  const pass = receiver.onData.bind(receiver);
  const parser = new FrameParser(isFinal);
  let refused = false;
  const look = (data: Chunk): void => {
    refused ||= !parser.done && !parser.take(data.subarray());
    if (refused) {
      receiver.abort(new RangeError('the length of a message does not end'));
    }
  };
  look(receiver.readBuffer);
  receiver.onData = (data) => {
    if (!refused) {
      look(data);
    }
    if (!refused) {
      pass(data);
    }
  };
}

/** On a new TCP connection only this follows the negotiation. */
export const isNoise: IsFinal = (name) => name === '/noise';
const isYamux: IsFinal = (name) => name === '/yamux/1.0.0';
/** The other end repeats what it accepts. */
const isAccepted: IsFinal = (name) => name.startsWith('/');

export function guardedNoise(): ReturnType<typeof noise> {
  return (components) => {
    const encrypter = noise()(components);
    for (const side of ['secureInbound', 'secureOutbound'] as const) {
      const secure = encrypter[side].bind(encrypter);
      encrypter[side] = async (connection, options) => {
        const secured = await secure(connection, options);
        // With a muxer chosen inside the handshake there is no negotiation left.
        if (secured.streamMuxer === undefined) {
          guard(secured.connection, isYamux);
        }
        return secured;
      };
    }
    return encrypter;
  };
}

/** What is used of libp2p's parts. */
interface Components {
  registrar: { getProtocols(): string[] };
}

interface Muxer {
  onRemoteStream(stream: unknown): void;
  onCreateStream(options: unknown): unknown;
}

export function guardedYamux(init: YamuxMuxerInit): (components: Components) => StreamMuxerFactory {
  return (components) => {
    const factory = yamux(init)() as StreamMuxerFactory;
    const create = factory.createStreamMuxer.bind(factory);
    const isHandled: IsFinal = (name) => components.registrar.getProtocols().includes(name);
    factory.createStreamMuxer = (connection) => {
      const muxer = create(connection);
      const inner = muxer as unknown as Muxer;
      const onRemoteStream = inner.onRemoteStream.bind(inner);
      const onCreateStream = inner.onCreateStream.bind(inner);
      inner.onRemoteStream = (stream) => {
        guard(stream, isHandled);
        onRemoteStream(stream);
      };
      inner.onCreateStream = (options) => {
        const stream = onCreateStream(options);
        guard(stream, isAccepted);
        return stream;
      };
      return muxer;
    };
    return factory;
  };
}
