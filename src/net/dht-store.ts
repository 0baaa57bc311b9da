import { MemoryDatastore } from 'datastore-core';

/** Where kad-dht keeps provider records: this, the key, the provider's peer id. */
const PROVIDERS = '/dht/provider/';
/** Of all peers. A look-up walks over all of them, which takes some milliseconds at this number. */
const RECORDS = 4096;
/** Of one peer: it serves few models. */
const RECORDS_PER_PEER = 64;

type Key = Parameters<MemoryDatastore['put']>[0];
type Options = Parameters<MemoryDatastore['put']>[2];

/**
 * What libp2p remembers, in memory. Anybody may name itself as a provider of anything for two days, so that the records of
 * one peer and of all are bounded; the oldest goes first, our own never.
 */
export class DhtStore extends MemoryDatastore {
  readonly #ownPeerId: string;
  /** Key to peer id, oldest first. */
  readonly #records = new Map<string, string>();
  readonly #ofPeer = new Map<string, number>();

  constructor(ownPeerId: string) {
    super();
    this.#ownPeerId = ownPeerId;
  }

  /** Provider records, ours included. */
  get records(): number {
    return this.#records.size;
  }

  override put(key: Key, value: Uint8Array, options?: Options): Key | Promise<Key> {
    const name = key.toString();
    if (name.startsWith(PROVIDERS)) {
      this.#remember(name);
    }
    return super.put(key, value, options);
  }

  override delete(key: Key, options?: Options): void | Promise<void> {
    this.#forget(key.toString());
    return super.delete(key, options);
  }

  #remember(name: string): void {
    const peerId = name.slice(name.lastIndexOf('/') + 1);
    this.#forget(name);
    if ((this.#ofPeer.get(peerId) ?? 0) >= RECORDS_PER_PEER && peerId !== this.#ownPeerId) {
      this.#evict((owner) => owner === peerId);
    } else if (this.#records.size >= RECORDS) {
      this.#evict((owner) => owner !== this.#ownPeerId);
    }
    this.#records.set(name, peerId);
    this.#ofPeer.set(peerId, (this.#ofPeer.get(peerId) ?? 0) + 1);
  }

  #evict(isRight: (owner: string) => boolean): void {
    for (const [name, owner] of this.#records) {
      if (isRight(owner)) {
        void this.delete(keyOf(name));
        return;
      }
    }
  }

  #forget(name: string): void {
    const peerId = this.#records.get(name);
    if (peerId === undefined) {
      return;
    }
    this.#records.delete(name);
    const left = (this.#ofPeer.get(peerId) ?? 1) - 1;
    if (left === 0) {
      this.#ofPeer.delete(peerId);
    } else {
      this.#ofPeer.set(peerId, left);
    }
  }
}

/** The store looks at nothing but the name. */
function keyOf(name: string): Key {
  return { toString: () => name } as Key;
}
