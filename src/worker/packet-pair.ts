import { MeshnetError } from '../errors.ts';
import { PathKind } from '../proto/peer_pb.js';
import { fromAbort } from './grpc-error.ts';
import type { AbortOptions, PacketDuplex } from './packet-duplex.ts';

/** Packets on their way before a writer has to wait. */
const QUEUE_PACKETS = 4;

/** Both ends of a packet stream inside this process: two stages of one node. */
export function packetPair(): [PacketDuplex, PacketDuplex] {
  const there = new OneWay();
  const back = new OneWay();
  return [new LocalPackets(back, there), new LocalPackets(there, back)];
}

/** One direction. */
class OneWay {
  readonly #queue: Uint8Array[] = [];
  #closed = false;
  #failure: MeshnetError | undefined;
  #wake = Promise.withResolvers<void>();

  async push(packet: Uint8Array, signal: AbortSignal): Promise<void> {
    this.#assertOpen(signal);
    this.#queue.push(packet);
    this.#changed();
    while (this.#queue.length > QUEUE_PACKETS) {
      await this.#wait(signal);
      this.#assertOpen(signal);
    }
  }

  close(): void {
    this.#closed = true;
    this.#changed();
  }

  fail(err: MeshnetError): void {
    this.#failure ??= err;
    this.#queue.length = 0;
    this.#changed();
  }

  async *packets(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const packet = this.#queue.shift();
      if (packet !== undefined) {
        this.#changed();
        yield packet;
      } else if (this.#failure !== undefined) {
        throw this.#failure;
      } else if (this.#closed) {
        return;
      } else {
        await this.#wake.promise;
      }
    }
  }

  #assertOpen(signal: AbortSignal): void {
    if (signal.aborted) {
      throw fromAbort(signal, 'writing a packet');
    }
    if (this.#failure !== undefined || this.#closed) {
      throw this.#failure ?? new MeshnetError('STREAM_ENDED', 'a packet was written after the end');
    }
  }

  #changed(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const stop = this.#wake;
    const onAbort = (): void => stop.resolve();
    signal.addEventListener('abort', onAbort, { once: true });
    await stop.promise;
    signal.removeEventListener('abort', onAbort);
  }
}

class LocalPackets implements PacketDuplex {
  readonly path = PathKind.LOCAL;
  readonly #incoming: OneWay;
  readonly #outgoing: OneWay;

  constructor(incoming: OneWay, outgoing: OneWay) {
    this.#incoming = incoming;
    this.#outgoing = outgoing;
  }

  read(): AsyncIterable<Uint8Array> {
    return this.#incoming.packets();
  }

  write(packet: Uint8Array, options: AbortOptions): Promise<void> {
    return this.#outgoing.push(packet, options.signal);
  }

  async close(_options: AbortOptions): Promise<void> {
    this.#outgoing.close();
  }

  abort(err: Error): void {
    const broken = err instanceof MeshnetError ? err : new MeshnetError('STREAM_ENDED', undefined, { cause: err });
    this.#incoming.fail(broken);
    this.#outgoing.fail(broken);
  }
}
