import { PathKind } from '../../src/proto/peer_pb.js';
import type { PacketDuplex } from '../../src/worker/packet-duplex.ts';

/** Two ends of a packet stream in one process: what one writes, the other reads. */
export function memoryDuplexPair(): [PacketDuplex, PacketDuplex] {
  const there = new Pipe();
  const back = new Pipe();
  return [duplex(there, back), duplex(back, there)];
}

function duplex(out: Pipe, back: Pipe): PacketDuplex {
  return {
    path: PathKind.LOCAL,
    read: () => back.read(),
    write: async (packet) => { out.push(packet); },
    close: async () => { out.end(); },
    abort: (err) => {
      out.fail(err);
      back.fail(err);
    },
  };
}

class Pipe {
  readonly #packets: Uint8Array[] = [];
  #ended = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  push(packet: Uint8Array): void {
    this.#packets.push(packet);
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  fail(err: Error): void {
    this.#failure ??= err;
    this.#wake?.();
  }

  async * read(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const packet = this.#packets.shift();
      if (packet !== undefined) {
        yield packet;
      } else if (this.#failure !== undefined) {
        throw this.#failure;
      } else if (this.#ended) {
        return;
      } else {
        await new Promise<void>((resolve) => { this.#wake = resolve; });
      }
    }
  }
}
