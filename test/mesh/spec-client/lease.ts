/** One stage's admission: the stream that admits, links, keeps alive and releases. */
import type { Libp2p } from '@libp2p/interface';
import { decode, encode, type Init } from './codec.ts';
import type { Shard } from './directory.ts';
import { ProtocolError, ensure, fromWire } from './errors.ts';
import { openStream } from './host.ts';
import type { MessageStream } from './message-stream.ts';
import { AdmitReply, AdmitRequest, type Admit, type Admitted, type Lane, type Link } from './messages.ts';

/** At least every 10 s says SPEC.md. */
const KEEP_ALIVE_MS = 5000;
const MAX_MESSAGE_BYTES = 8 * 1024;

export class Lease {
  readonly shard: Shard;
  readonly lane: Init<typeof Lane>;
  readonly admitted: Admitted;
  readonly #stream: MessageStream;
  readonly #timer: NodeJS.Timeout;

  private constructor(shard: Shard, lane: Init<typeof Lane>, admitted: Admitted, stream: MessageStream) {
    this.shard = shard;
    this.lane = lane;
    this.admitted = admitted;
    this.#stream = stream;
    const keepAlive = encode(AdmitRequest, { keepAlive: {} });
    this.#timer = setInterval(() => {
      stream.send(keepAlive, AbortSignal.timeout(KEEP_ALIVE_MS)).catch((err: Error) => stream.abort(err));
    }, KEEP_ALIVE_MS);
  }

  static async admit(host: Libp2p, shard: Shard, admit: Init<typeof Admit>, signal: AbortSignal): Promise<Lease> {
    const stream = await openStream(host, shard.peer, '/meshnet/admit/1', signal);
    try {
      await stream.send(encode(AdmitRequest, { admit }), signal);
      const { admitted } = await receive(stream, signal);
      ensure(admitted !== undefined, 'the first answer is not Admitted');
      ensure(admitted.positions > 0 && admitted.positions <= (admit.positions ?? 0), 'positions granted');
      ensure(admitted.seamCertificate.length <= 1024, 'the seam certificate is too long');
      for (const { end } of admit.seams ?? []) {
        ensure(admitted.tickets.some((ticket) => ticket.end === end), `no ticket for end ${end}`);
      }
      ensure(admitted.tickets.every(({ ticket }) => ticket.length === 32), 'a ticket is not 32 bytes');
      return new Lease(shard, admit.lane ?? {}, admitted, stream);
    } catch (err) {
      stream.abort(err as Error);
      throw err;
    }
  }

  ticket(end: number): Uint8Array {
    const ticket = this.admitted.tickets.find((each) => each.end === end)?.ticket;
    ensure(ticket !== undefined, `no ticket for end ${end}`);
    return ticket;
  }

  /** Returns the path that a dialling end found. */
  async link(link: Init<typeof Link>, signal: AbortSignal): Promise<number> {
    await this.#stream.send(encode(AdmitRequest, { link }), signal);
    const { linked } = await receive(this.#stream, signal);
    ensure(linked !== undefined && linked.end === link.end, 'the answer is not Linked of this end');
    return linked.path;
  }

  /** Gives the lane back and waits until the stage has closed the stream. */
  async release(signal: AbortSignal): Promise<void> {
    clearInterval(this.#timer);
    // The lane may have ended by itself after Close: then the stage has said so, and the stream takes no Release.
    const sent = await this.#sayRelease(signal).then(() => true, () => false);
    let released = false;
    for (let bytes = await this.#stream.receive(signal); bytes !== undefined; bytes = await this.#stream.receive(signal)) {
      const reply = decode(AdmitReply, bytes);
      ensure(reply.error === undefined, 'the lane did not end in order');
      released = reply.released !== undefined;
    }
    ensure(sent || released, 'the stream of the lease broke');
  }

  async #sayRelease(signal: AbortSignal): Promise<void> {
    await this.#stream.send(encode(AdmitRequest, { release: {} }), signal);
    await this.#stream.close(signal);
  }

  drop(reason: Error): void {
    clearInterval(this.#timer);
    this.#stream.abort(reason);
  }
}

async function receive(stream: MessageStream, signal: AbortSignal) {
  const bytes = await stream.receive(signal);
  if (bytes === undefined) {
    throw new ProtocolError('the admission stream ended');
  }
  ensure(bytes.length <= MAX_MESSAGE_BYTES, 'a message of the admission stream is too long');
  const reply = decode(AdmitReply, bytes);
  if (reply.error !== undefined) {
    throw fromWire(reply.error);
  }
  return reply;
}
