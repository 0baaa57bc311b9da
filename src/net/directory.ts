import { matches, parseAdvertisement, type AdvertisementRecord } from '../domain/advertisement.ts';
import { LIMITS } from '../domain/limits.ts';
import type { LayerRange } from '../domain/shard.ts';
import { fromWireError, toWireError } from '../domain/wire-error.ts';
import { MeshnetError } from '../errors.ts';
import { DirectoryReplySchema, DirectoryRequestSchema } from '../proto/peer_pb.js';
import { checkBytes } from './admission-checks.ts';
import { systemClock, type Clock } from './clock.ts';
import type { StreamAcceptor, StreamOpener } from './host.ts';
import { verify } from './identity.ts';
import { silentLog, type NetLog } from './log.ts';
import type { PeerTarget, ProtocolSpec } from './protocols.ts';
import { RateLimit } from './rate-limit.ts';
import type { WaitOptions } from './wait.ts';
import type { MessageStream } from './wire.ts';

/** One question a stream; a seeker has few at once. */
export const DIRECTORY: ProtocolSpec = Object.freeze({
  id: '/meshnet/directory/1',
  maxInboundStreams: 8,
  maxOutboundStreams: 32,
  maxStreamsPerPeer: 8,
  maxStreams: 128,
});

/** Of the server, for the question and for the answer to be taken. */
const SERVE_MS = 5000;
/** A gateway asks once a session and model at most; a burst is its start with many models. */
const QUESTION_BURST = 32;
const QUESTIONS_PER_SECOND = 4;

export interface DirectoryComponents {
  host: StreamOpener & StreamAcceptor;
  /** Of the rate limits. */
  clock?: Clock;
  /** Unix ms, against which advertisements expire. */
  now?: () => number;
  log?: NetLog;
}

/** Asking peers for their advertisements, and answering with our own. */
export class Directory {
  readonly #host: StreamOpener & StreamAcceptor;
  readonly #rate: RateLimit;
  readonly #now: () => number;
  readonly #log: NetLog;

  constructor({ host, clock = systemClock, now = Date.now, log = silentLog }: DirectoryComponents) {
    this.#host = host;
    this.#rate = new RateLimit({ burst: QUESTION_BURST, perSecond: QUESTIONS_PER_SECOND, clock });
    this.#now = now;
    this.#log = log;
  }

  /** Answers with what `local` gives at that moment and matches the question. */
  async serve(local: () => Promise<readonly AdvertisementRecord[]>): Promise<void> {
    await this.#host.handle(DIRECTORY, (stream) => this.#answer(stream, local));
  }

  /**
   * What a peer says of its own shards of a model, of those that overlap the range when one is given. Every record is
   * verified; those that are not valid are left out.
   *
   * @throws {MeshnetError} PEER_UNREACHABLE, RATE_EXCEEDED, STREAM_ENDED, MALFORMED, FRAME_TOO_LARGE, LIMIT_EXCEEDED,
   *   DEADLINE_EXCEEDED, CANCELLED
   */
  async get(
    peer: PeerTarget, { modelDigest, range }: { modelDigest: Uint8Array; range?: LayerRange }, options: WaitOptions,
  ): Promise<AdvertisementRecord[]> {
    const stream = await this.#host.open(peer, DIRECTORY, options);
    await stream.write(DirectoryRequestSchema, { modelDigest, layerFirst: range?.first, layerLast: range?.last }, options);
    const reply = await stream.read(DirectoryReplySchema, LIMITS.directoryReplyBytes, options);
    void stream.close({ timeoutMs: SERVE_MS });
    if (reply.error !== undefined) {
      throw fromWireError(reply.error);
    }
    if (reply.advertisements.length > LIMITS.advertisementsPerReply) {
      throw new MeshnetError('LIMIT_EXCEEDED', 'a directory answer has too many advertisements', {
        details: { count: reply.advertisements.length, limit: LIMITS.advertisementsPerReply },
      });
    }
    const records: AdvertisementRecord[] = [];
    for (const signed of reply.advertisements) {
      try {
        const record = await parseAdvertisement(signed, { verify, nowMs: this.#now(), peerId: stream.remotePeer });
        if (matches(record.advertisement, modelDigest, range)) {
          records.push(record);
        }
      } catch (err) {
        const { details } = err as MeshnetError;
        this.#log.debug({ peer: stream.remotePeer, details }, 'an advertisement was left out');
      }
    }
    return records;
  }

  async #answer(stream: MessageStream, local: () => Promise<readonly AdvertisementRecord[]>): Promise<void> {
    const options = { timeoutMs: SERVE_MS };
    try {
      const request = await stream.read(DirectoryRequestSchema, LIMITS.directoryRequestBytes, options);
      this.#rate.take(stream.remotePeer);
      checkBytes('modelDigest', request.modelDigest, LIMITS.digestBytes);
      const { layerFirst: first, layerLast: last } = request;
      const range = first === 0 && last === 0 ? undefined : { first, last };
      const found = (await local()).filter(({ advertisement }) => matches(advertisement, request.modelDigest, range));
      const advertisements = found.slice(0, LIMITS.advertisementsPerReply).map(({ signed }) => signed);
      await stream.write(DirectoryReplySchema, { advertisements }, options);
    } catch (err) {
      if (!stream.open) {
        throw err;
      }
      await stream.write(DirectoryReplySchema, { error: toWireError(err) }, options);
    }
    await stream.close(options);
  }
}
