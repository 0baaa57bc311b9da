import assert from 'node:assert/strict';
import { isMeshnetError, MeshnetError } from '../../src/errors.ts';
import type { PeerTarget } from '../../src/net/protocols.ts';
import { Finder, type FinderInit } from '../../src/route/finder.ts';
import type { Offer } from '../../src/route/offer.ts';
import { MODEL, offer, soon } from './rig.ts';

/** Peers by name and what each says; one that says nothing hangs. */
class Mesh {
  readonly peers = new Map<string, Offer[] | MeshnetError | 'hang'>();
  local: Offer[] = [];
  asked: string[] = [];
  asking = 0;
  mostAtOnce = 0;
  /** The DHT query goes on after its last provider. */
  endless = false;

  finder(init: FinderInit = {}): Finder {
    return new Finder({
      providers: (_digest, { signal }) => this.#providers(signal),
      offers: (peer, _digest, { signal }) => this.#offers(peer, signal),
      localOffers: async () => this.local,
    }, init);
  }

  async * #providers(signal: AbortSignal): AsyncGenerator<PeerTarget> {
    for (const peerId of this.peers.keys()) {
      yield { peerId };
    }
    if (this.endless) {
      await ended(signal);
      throw new MeshnetError('DEADLINE_EXCEEDED');
    }
  }

  async #offers({ peerId }: PeerTarget, signal: AbortSignal): Promise<Offer[]> {
    this.asked.push(peerId);
    this.asking += 1;
    this.mostAtOnce = Math.max(this.mostAtOnce, this.asking);
    try {
      await new Promise((resolve) => { setImmediate(resolve); });
      const says = this.peers.get(peerId);
      if (says === 'hang') {
        await ended(signal);
        throw new MeshnetError('DEADLINE_EXCEEDED');
      }
      if (says instanceof MeshnetError) {
        throw says;
      }
      return says ?? [];
    } finally {
      this.asking -= 1;
    }
  }
}

function ended(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => { resolve(); }, { once: true });
    if (signal.aborted) {
      resolve();
    }
  });
}

describe('route/finder', () => {
  let mesh: Mesh;
  let clock: number;
  const now = (): number => clock;

  beforeEach(() => {
    mesh = new Mesh();
    clock = 1000;
  });

  const names = (offers: readonly Offer[]): string[] =>
    offers.map(({ peerId }) => peerId).toSorted((a, b) => a.localeCompare(b));

  it('unites what this node and all providers say, each shard once', async () => {
    mesh.local = [offer(0, 6)];
    mesh.peers.set('a', [offer(6, 12), offer(6, 12)]);
    mesh.peers.set('b', [offer(0, 12)]);
    assert.deepEqual(names(await mesh.finder().find(MODEL, soon())), ['peer-0-12', 'peer-0-6', 'peer-6-12']);
  });

  it('goes on without providers that fail, hang, or are ghosts', async () => {
    mesh.peers.set('ghost', new MeshnetError('PEER_UNREACHABLE'));
    mesh.peers.set('hangs', 'hang');
    mesh.peers.set('good', [offer(0, 12)]);
    assert.deepEqual(names(await mesh.finder({ peerMs: 20 }).find(MODEL, soon())), ['peer-0-12']);
  });

  it('ends a look-up that finds no end, with what it has', async () => {
    mesh.endless = true;
    mesh.peers.set('good', [offer(0, 12)]);
    assert.deepEqual(names(await mesh.finder({ lookupMs: 30 }).find(MODEL, soon())), ['peer-0-12']);
  });

  it('looks for better ones only for a moment once it has all layers', async () => {
    mesh.endless = true;
    mesh.local = [offer(0, 6)];
    mesh.peers.set('hangs', 'hang');
    mesh.peers.set('good', [offer(6, 12)]);
    const finder = mesh.finder({ settleMs: 20, lookupMs: 60_000, peerMs: 60_000 });
    assert.deepEqual(names(await finder.find(MODEL, soon())), ['peer-0-6', 'peer-6-12']);
  });

  it('asks nobody while this node has the whole model, unless the answer has to be fresh', async () => {
    mesh.local = [offer(0, 12)];
    mesh.peers.set('good', [offer(0, 6)]);
    const finder = mesh.finder();
    assert.deepEqual(names(await finder.find(MODEL, soon())), ['peer-0-12']);
    assert.deepEqual(names(await finder.find(MODEL, { ...soon(), fresh: true })), ['peer-0-12', 'peer-0-6']);
  });

  it('asks once for all that look for the same model at the same time', async () => {
    mesh.peers.set('a', [offer(0, 12)]);
    const finder = mesh.finder();
    const found = await Promise.all(Array.from({ length: 20 }, () => finder.find(MODEL, { ...soon(), fresh: true })));
    assert.deepEqual(mesh.asked, ['a']);
    assert.ok(found.every((offers) => offers.length === 1));
  });

  it('goes on with a look-up for those that still wait, and ends it with the last', async () => {
    mesh.endless = true;
    mesh.peers.set('a', [offer(0, 6)]);
    const finder = mesh.finder({ lookupMs: 60 });
    const gone = new AbortController();
    const left = finder.find(MODEL, { signal: gone.signal });
    const waiting = finder.find(MODEL, soon());
    gone.abort(new MeshnetError('CANCELLED'));
    await assert.rejects(left, (err) => isMeshnetError(err, 'CANCELLED'));
    assert.deepEqual(names(await waiting), ['peer-0-6']);
  });

  it('keeps what a peer said that is only asked too often', async () => {
    mesh.peers.set('peer-0-12', [offer(0, 12)]);
    const finder = mesh.finder();
    await finder.find(MODEL, soon());
    mesh.peers.set('peer-0-12', new MeshnetError('RATE_EXCEEDED'));
    assert.deepEqual(names(await finder.find(MODEL, { ...soon(), fresh: true })), ['peer-0-12']);
    mesh.peers.set('peer-0-12', new MeshnetError('PEER_UNREACHABLE'));
    assert.deepEqual(await finder.find(MODEL, { ...soon(), fresh: true }), []);
  });

  it('asks a bounded number of peers, and of those a bounded number at once', async () => {
    for (let i = 0; i < 50; i++) {
      mesh.peers.set(`p${i}`, []);
    }
    await mesh.finder({ maxPeers: 20, parallel: 4 }).find(MODEL, soon());
    assert.equal(mesh.asked.length, 20);
    assert.ok(mesh.mostAtOnce <= 4, `${mesh.mostAtOnce} at once`);
  });

  it('throws the reason of the signal', async () => {
    mesh.endless = true;
    const gone = new AbortController();
    const finding = mesh.finder().find(MODEL, { signal: gone.signal });
    gone.abort(new MeshnetError('DRAINING'));
    await assert.rejects(finding, (err) => isMeshnetError(err, 'DRAINING'));
  });

  it('answers from memory for some seconds, unless the answer has to be fresh or there was none', async () => {
    const finder = mesh.finder({ now, freshMs: 5000 });
    assert.deepEqual(await finder.find(MODEL, soon()), []);
    assert.equal(finder.remembers(MODEL), false);
    mesh.peers.set('a', [offer(0, 12)]);
    await finder.find(MODEL, soon());
    clock += 4999;
    assert.equal(finder.remembers(MODEL), true);
    await finder.find(MODEL, soon());
    assert.equal(mesh.asked.length, 1);
    await finder.find(MODEL, { ...soon(), fresh: true });
    assert.equal(mesh.asked.length, 2);
    clock += 5000;
    assert.equal(finder.remembers(MODEL), false);
    await finder.find(MODEL, soon());
    assert.equal(mesh.asked.length, 3);
  });

  it('counts a failed shard as evicted for its time, and its next boot not', () => {
    const finder = mesh.finder({ now, evictMs: 60_000 });
    finder.evict(offer(0, 6));
    assert.deepEqual([...finder.evicted()], ['peer-0-6/0-6/00']);
    clock += 59_999;
    assert.equal(finder.evicted().size, 1);
    clock += 1;
    assert.equal(finder.evicted().size, 0);
  });
});
