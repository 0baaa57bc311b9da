import type { Connection, Stream } from '@libp2p/interface';
import { MeshnetError, toMeshnetError } from '../errors.ts';
import type { NetLog } from './log.ts';
import { pathOf } from './path.ts';
import type { ProtocolSpec } from './protocols.ts';
import { MessageStream } from './wire.ts';

/** Serves one stream; it is reset when this throws. Returning leaves it as it is. */
export type StreamHandler = (stream: MessageStream) => Promise<void>;

/** The inbound streams of one protocol: counted, bounded and ended with the host. */
export class Inbound {
  readonly #spec: ProtocolSpec;
  readonly #handler: StreamHandler;
  readonly #log: NetLog;
  readonly #streams = new Set<MessageStream>();

  constructor(spec: ProtocolSpec, handler: StreamHandler, log: NetLog) {
    this.#spec = spec;
    this.#handler = handler;
    this.#log = log;
  }

  get size(): number {
    return this.#streams.size;
  }

  /** For libp2p's `handle`: never throws, and takes the stream before it returns. */
  readonly accept = (raw: Stream, connection: Connection): void => {
    const stream = new MessageStream(raw, { remotePeer: connection.remotePeer.toString(), path: pathOf(connection) });
    const ofPeer = [...this.#streams].filter(({ remotePeer }) => remotePeer === stream.remotePeer).length;
    if (this.#streams.size >= this.#spec.maxStreams || ofPeer >= this.#spec.maxStreamsPerPeer) {
      stream.abort(new MeshnetError('RESOURCE_EXHAUSTED', `too many streams of ${this.#spec.id}`, {
        details: { protocol: this.#spec.id, ofPeer, streams: this.#streams.size },
      }));
      return;
    }
    this.#streams.add(stream);
    stream.onClose(() => this.#streams.delete(stream));
    void this.#serve(stream);
  };

  abortAll(reason: MeshnetError): void {
    for (const stream of this.#streams) {
      stream.abort(reason);
    }
  }

  async #serve(stream: MessageStream): Promise<void> {
    try {
      await this.#handler(stream);
    } catch (err) {
      const { code, details, message } = toMeshnetError(err);
      this.#log.debug({ protocol: this.#spec.id, peer: stream.remotePeer, code, details }, message);
      stream.abort(toMeshnetError(err));
    }
  }
}
