import { CID } from 'multiformats/cid';
import { create as createDigest } from 'multiformats/hashes/digest';
import { toMeshnetError } from '../errors.ts';
import { systemClock, type Clock } from './clock.ts';
import type { Host } from './host.ts';
import { isPeerId } from './identity.ts';
import { silentLog, type NetLog } from './log.ts';
import type { PeerTarget } from './protocols.ts';
import { abortError, signalOf, type WaitOptions } from './wait.ts';

const RAW = 0x55;
const SHA2_256 = 0x12;
/** After a new connection; several at once count as one. A DHT that was away has lost its records. */
const SETTLE_MS = 2000;
/** For one time of saying it again. */
const AGAIN_MS = 30_000;
/** Models of one node. */
const MODELS = 256;
/** Of one peer in a DHT answer; more are not worth a dial. */
const ADDRESSES = 8;

export interface ProviderRecordsComponents {
  host: Pick<Host, 'dht' | 'onPeers' | 'peerId'>;
  clock?: Clock;
  log?: NetLog;
}

/**
 * Which peers have shards of a model, by the DHT. Records live for two days there, so many name peers that are gone: they
 * are hints and nothing more.
 */
export class ProviderRecords {
  readonly #host: ProviderRecordsComponents['host'];
  readonly #clock: Clock;
  readonly #log: NetLog;
  /** By model digest. */
  readonly #provided = new Map<string, CID>();
  #running: AbortController | undefined;
  #stopListening = (): void => undefined;
  #stopTimer = (): void => undefined;
  #peers = 0;

  constructor({ host, clock = systemClock, log = silentLog }: ProviderRecordsComponents) {
    this.#host = host;
    this.#clock = clock;
    this.#log = log;
  }

  /** Says again what is provided whenever a peer connects: it may be a DHT server that was away. */
  start(): void {
    this.#running ??= new AbortController();
    this.#stopListening();
    this.#stopListening = this.#host.onPeers((count) => this.#onPeers(count));
  }

  stop(): void {
    this.#stopListening();
    this.#stopTimer();
    this.#running?.abort();
    this.#running = undefined;
  }

  /**
   * Tells the DHT servers closest to the model's key that this node has shards of it, once. Gives how many took it.
   *
   * @throws {MeshnetError} DEADLINE_EXCEEDED, CANCELLED: the DHT has no peers yet, or they are slow
   */
  async provide(modelDigest: Uint8Array, options: WaitOptions): Promise<number> {
    const cid = keyOf(modelDigest);
    if (this.#provided.size < MODELS) {
      this.#provided.set(cid.toString(), cid);
    }
    return this.#tell(cid, signalOf(options));
  }

  /** Not said again from now on; what the DHT has expires by itself. */
  async withdraw(modelDigest: Uint8Array, options: WaitOptions): Promise<void> {
    const cid = keyOf(modelDigest);
    this.#provided.delete(cid.toString());
    await this.#host.dht.cancelReprovide(cid, { signal: signalOf(options) });
  }

  /**
   * Peers, ourselves excepted, as the DHT names them. Ends with the query, at the deadline or the abort; only an abort that
   * is not a deadline throws.
   *
   * @throws {MeshnetError} CANCELLED, or the reason of the signal
   */
  async *findProviders(modelDigest: Uint8Array, options: WaitOptions): AsyncGenerator<PeerTarget> {
    const over = new AbortController();
    const given = signalOf(options);
    const seen = new Set<string>([this.#host.peerId]);
    try {
      for await (const event of this.#host.dht.findProviders(keyOf(modelDigest), { signal: AbortSignal.any([given, over.signal]) })) {
        for (const { id, multiaddrs } of event.name === 'PROVIDER' ? event.providers : []) {
          const peerId = id.toString();
          if (!seen.has(peerId) && isPeerId(peerId)) {
            seen.add(peerId);
            yield { peerId, addresses: multiaddrs.slice(0, ADDRESSES).map((address) => address.toString()) };
          }
        }
      }
    } catch (err) {
      const error = given.aborted ? abortError(given, 'looking for providers') : toMeshnetError(err);
      if (given.aborted && error.code !== 'DEADLINE_EXCEEDED') {
        throw error;
      }
      this.#log.debug({ code: error.code, found: seen.size - 1 }, 'a look-up of providers ended early');
    } finally {
      over.abort();
    }
  }

  async #tell(cid: CID, signal: AbortSignal): Promise<number> {
    let taken = 0;
    try {
      for await (const event of this.#host.dht.provide(cid, { signal })) {
        if (event.name === 'PEER_RESPONSE' && event.messageName === 'ADD_PROVIDER') {
          taken++;
        }
      }
    } catch (err) {
      throw signal.aborted ? abortError(signal, 'telling the DHT') : toMeshnetError(err);
    }
    return taken;
  }

  #onPeers(count: number): void {
    const grew = count > this.#peers;
    this.#peers = count;
    if (grew && this.#provided.size > 0) {
      this.#stopTimer();
      this.#stopTimer = this.#clock.after(SETTLE_MS, () => void this.#tellAgain());
    }
  }

  async #tellAgain(): Promise<void> {
    const running = this.#running?.signal;
    for (const cid of this.#provided.values()) {
      if (running === undefined || running.aborted) {
        return;
      }
      try {
        await this.#tell(cid, AbortSignal.any([running, AbortSignal.timeout(AGAIN_MS)]));
      } catch (err) {
        this.#log.debug({ code: toMeshnetError(err).code }, 'the DHT could not be told again');
      }
    }
  }
}

/** CIDv1, raw, with the model digest as its SHA-256: the CID of the manifest's bytes. */
function keyOf(modelDigest: Uint8Array): CID {
  return CID.createV1(RAW, createDigest(SHA2_256, modelDigest));
}
