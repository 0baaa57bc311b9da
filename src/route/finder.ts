import { toString as bytesToString } from 'uint8arrays/to-string';
import { candidateId } from '../domain/route.ts';
import { isMeshnetError } from '../errors.ts';
import type { PeerTarget } from '../net/protocols.ts';
import { abortError, within } from '../net/wait.ts';
import type { AbortOptions } from '../worker/packet-duplex.ts';
import type { Offer } from './offer.ts';
import { uncovered } from './planner.ts';

/** What the finder needs of the directory. */
export interface OfferSource {
  /** Peers that the DHT names as providers of the model, as they are found. */
  providers(modelDigest: Uint8Array, options: AbortOptions): AsyncIterable<PeerTarget>;
  /** The verified advertisements of one peer. */
  offers(peer: PeerTarget, modelDigest: Uint8Array, options: AbortOptions): Promise<Offer[]>;
  /** What this node serves itself. */
  localOffers(modelDigest: Uint8Array): Promise<Offer[]>;
}

export interface FinderInit {
  /** A whole look-up. @default 8000 ms */
  lookupMs?: number;
  /** Once all layers are found: how long it looks for better ones. @default 1000 ms */
  settleMs?: number;
  /** One peer's answer. @default 5000 ms */
  peerMs?: number;
  /** A failed shard is avoided for this long. @default 60_000 ms */
  evictMs?: number;
  /** Peers asked at once. @default 8 */
  parallel?: number;
  /** Peers asked in one look-up. @default 64 */
  maxPeers?: number;
  /** An answer serves later look-ups for this long. @default 5000 ms */
  freshMs?: number;
  /** Monotonic, ms. */
  now?: () => number;
}

/** One that goes on for as long as somebody waits for it. */
interface LookUp {
  readonly result: Promise<Offer[]>;
  readonly stop: AbortController;
  waiting: number;
}

/** Finds who serves a model now, and remembers for a while what failed, so that the next route avoids it. */
export class Finder {
  readonly #source: OfferSource;
  readonly #init: Required<FinderInit>;
  readonly #evicted = new Map<string, number>();
  /** By model digest. Models come from configuration, so they are few. */
  readonly #known = new Map<string, { at: number; offers: Offer[] }>();
  readonly #lookUps = new Map<string, LookUp>();

  constructor(source: OfferSource, init: FinderInit = {}) {
    this.#source = source;
    this.#init = {
      lookupMs: 8000, settleMs: 1000, peerMs: 5000, evictMs: 60_000, parallel: 8, maxPeers: 64, freshMs: 5000,
      now: () => performance.now(), ...init,
    };
  }

  /**
   * The union of what all providers say. A provider that does not answer breaks nothing. Unless `fresh`, an answer of the
   * last seconds serves again, and nobody is asked when this node has the whole model itself.
   *
   * @throws {MeshnetError} CANCELLED or the reason of the signal
   */
  async find(modelDigest: Uint8Array, options: AbortOptions & { fresh?: boolean }): Promise<Offer[]> {
    const remembered = options.fresh === true ? undefined : this.#remembered(modelDigest);
    if (remembered !== undefined) {
      return remembered;
    }
    if (options.fresh !== true) {
      const local = await this.#source.localOffers(modelDigest);
      if (local.some(({ range, nLayer }) => range.first === 0 && range.last === nLayer)) {
        return local;
      }
    }
    const key = bytesToString(modelDigest, 'hex');
    const lookUp = this.#lookUps.get(key) ?? this.#begin(key, modelDigest);
    lookUp.waiting += 1;
    try {
      return await within(lookUp.result, 'looking for shards', options);
    } finally {
      lookUp.waiting -= 1;
      if (lookUp.waiting === 0 && this.#lookUps.get(key) === lookUp) {
        this.#lookUps.delete(key);
        lookUp.stop.abort();
      }
    }
  }

  /** Whether the next `find` answers from memory. */
  remembers(modelDigest: Uint8Array): boolean {
    return this.#remembered(modelDigest) !== undefined;
  }

  /** The shard failed: it counts as evicted for a while. */
  evict(offer: Offer): void {
    this.#evicted.set(candidateId(offer), this.#init.now() + this.#init.evictMs);
  }

  /** By `candidateId`, the shards that failed a moment ago. */
  evicted(): ReadonlySet<string> {
    const now = this.#init.now();
    for (const [id, until] of this.#evicted) {
      if (until <= now) {
        this.#evicted.delete(id);
      }
    }
    return new Set(this.#evicted.keys());
  }

  #remembered(modelDigest: Uint8Array): Offer[] | undefined {
    const known = this.#known.get(bytesToString(modelDigest, 'hex'));
    return known !== undefined && this.#init.now() - known.at < this.#init.freshMs ? known.offers : undefined;
  }

  /** One at a time for a model: many sessions that begin together ask the same peers, which limit questions. */
  #begin(key: string, modelDigest: Uint8Array): LookUp {
    const stop = new AbortController();
    const result = this.#lookUp(modelDigest, { signal: stop.signal }).then((offers) => {
      if (offers.length > 0) {
        this.#known.set(key, { at: this.#init.now(), offers });
      }
      return offers;
    });
    // It may fail when nobody waits for it any more.
    result.catch(() => undefined);
    const lookUp = { result, stop, waiting: 0 };
    this.#lookUps.set(key, lookUp);
    return lookUp;
  }

  async #lookUp(modelDigest: Uint8Array, options: AbortOptions): Promise<Offer[]> {
    const before = this.#known.get(bytesToString(modelDigest, 'hex'))?.offers ?? [];
    const found = new Map<string, Offer>();
    const enough = new AbortController();
    let settling: NodeJS.Timeout | undefined;
    const add = (offers: readonly Offer[]): void => {
      for (const offer of offers) {
        found.set(candidateId(offer), offer);
      }
      if (settling === undefined && isCovered([...found.values()])) {
        settling = setTimeout(() => { enough.abort(); }, this.#init.settleMs);
      }
    };
    add(await this.#source.localOffers(modelDigest));
    const signal = AbortSignal.any([options.signal, AbortSignal.timeout(this.#init.lookupMs), enough.signal]);
    const asking = new Set<Promise<void>>();
    const asked = new Set<string>();
    const ask = async (peer: PeerTarget): Promise<void> => {
      const answer = AbortSignal.any([signal, AbortSignal.timeout(this.#init.peerMs)]);
      add(await this.#source.offers(peer, modelDigest, { signal: answer }).catch((err: unknown) =>
        // It is there, and only asked too often.
        isMeshnetError(err, 'RATE_EXCEEDED') ? before.filter(({ peerId }) => peerId === peer.peerId) : []));
    };
    try {
      for await (const peer of this.#source.providers(modelDigest, { signal })) {
        if (asked.size >= this.#init.maxPeers) {
          break;
        }
        if (asked.has(peer.peerId)) {
          continue;
        }
        asked.add(peer.peerId);
        const one = ask(peer).finally(() => asking.delete(one));
        asking.add(one);
        if (asking.size >= this.#init.parallel) {
          await Promise.race(asking);
        }
      }
    } catch (err) {
      if (!signal.aborted) {
        clearTimeout(settling);
        throw err;
      }
    }
    await Promise.all(asking);
    clearTimeout(settling);
    if (options.signal.aborted) {
      throw abortError(options.signal, 'looking for shards');
    }
    return [...found.values()];
  }
}

function isCovered(offers: readonly Offer[]): boolean {
  const [one] = offers;
  return one !== undefined && uncovered(offers.map(({ range }) => range), one.nLayer).length === 0;
}
