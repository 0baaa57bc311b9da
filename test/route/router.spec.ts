import assert from 'node:assert/strict';
import { MeshnetError, isMeshnetError, type ErrorCode } from '../../src/errors.ts';
import { Finder } from '../../src/route/finder.ts';
import type { Offer } from '../../src/route/offer.ts';
import type { OpenRoute, RouteOpener } from '../../src/route/opener.ts';
import { Router } from '../../src/route/router.ts';
import { StageError } from '../../src/route/stage-error.ts';

const MODEL = new Uint8Array(32).fill(1);
const WISH = { nLayer: 12, positions: 100 };
const options = { signal: new AbortController().signal };

function offer(first: number, last: number, over: Partial<Offer> = {}): Offer {
  return {
    peerId: `peer-${first}-${last}`, range: { first, last }, engineClass: 'a', bootId: '00', decodeUs: 1000, lanes: 0,
    sequencesFree: 4, cellsFree: 4096, lanesResting: 0, cellsResting: 0, unverified: false, ...over,
  } as Offer;
}

/** A mesh of one answer: what is offered, and with which code a peer refuses. */
class Mesh {
  offers: Offer[] = [offer(0, 6), offer(6, 12)];
  refusals = new Map<string, ErrorCode>();
  lookUps = 0;
  opens = 0;
  readonly opened: string[][] = [];
  readonly router: Router;

  constructor() {
    const finder = new Finder({
      providers: () => this.#providers(),
      offers: async () => this.offers,
      localOffers: async () => [],
    });
    const opener: Pick<RouteOpener, 'open'> = {
      open: async (plan, _positions, { signal }) => {
        this.opens += 1;
        signal.throwIfAborted();
        const candidates = plan.map(({ candidate }) => candidate);
        const refusing = candidates.find(({ peerId }) => this.refusals.has(peerId));
        if (refusing !== undefined) {
          throw new StageError(refusing, new MeshnetError(this.refusals.get(refusing.peerId) as ErrorCode));
        }
        this.opened.push(candidates.map(({ peerId }) => peerId));
        return {} as OpenRoute;
      },
    };
    this.router = new Router({ finder, opener }, { random: () => 0.5 });
  }

  async * #providers(): AsyncGenerator<{ peerId: string }> {
    this.lookUps += 1;
    yield { peerId: 'all' };
  }

  open(): Promise<OpenRoute> {
    return this.router.open(MODEL, WISH, options);
  }
}

const code = (wanted: ErrorCode) => (err: unknown): boolean => isMeshnetError(err, wanted);

describe('route/router', () => {
  let mesh: Mesh;

  beforeEach(() => {
    mesh = new Mesh();
  });

  it('takes another shard when one refuses', async () => {
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    mesh.refusals.set('peer-6-12', 'NOT_SERVING');
    await mesh.open();
    assert.deepEqual(mesh.opened, [['peer-0-6', 'spare']]);
  });

  it('avoids a shard that failed in the next sessions too', async () => {
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    mesh.refusals.set('peer-6-12', 'PEER_UNREACHABLE');
    await mesh.open();
    mesh.refusals.clear();
    await mesh.open();
    assert.deepEqual(mesh.opened, [['peer-0-6', 'spare'], ['peer-0-6', 'spare']]);
  });

  it('takes a shard that failed when nobody else has its layers', async () => {
    mesh.refusals.set('peer-6-12', 'PEER_UNREACHABLE');
    await assert.rejects(mesh.open(), code('PEER_UNREACHABLE'));
    mesh.refusals.clear();
    await mesh.open();
    assert.deepEqual(mesh.opened, [['peer-0-6', 'peer-6-12']]);
  });

  it('takes a shard that was only busy again for the next session', async () => {
    for (const busy of ['NO_CAPACITY', 'RESOURCE_EXHAUSTED', 'RATE_EXCEEDED'] as const) {
      mesh.refusals.set('peer-6-12', busy);
      await assert.rejects(mesh.open(), code(busy));
    }
    mesh.refusals.clear();
    await mesh.open();
    assert.deepEqual(mesh.opened, [['peer-0-6', 'peer-6-12']]);
  });

  it('asks nobody anew when those who serve are only busy', async () => {
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    mesh.refusals.set('peer-6-12', 'NO_CAPACITY').set('spare', 'NO_CAPACITY');
    for (let i = 0; i < 3; i++) {
      await assert.rejects(mesh.open(), code('NO_CAPACITY'));
    }
    assert.deepEqual([mesh.lookUps, mesh.opens], [1, 6]);
    mesh.refusals.delete('spare');
    await mesh.open();
    assert.deepEqual(mesh.opened, [['peer-0-6', 'spare']]);
  });

  it('says that there was no room when one was only busy, because that is worth a wait', async () => {
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    for (const [first, second] of [['NO_CAPACITY', 'NOT_SERVING'], ['NOT_SERVING', 'NO_CAPACITY'], ['DRAINING', 'PEER_UNREACHABLE']] as const) {
      mesh.refusals.set('peer-6-12', first).set('spare', second);
      const expected = first === 'NOT_SERVING' ? second : first;
      await assert.rejects(mesh.open(), code(expected));
    }
  });

  it('takes the new boot of a shard whose old one failed', async () => {
    mesh.refusals.set('peer-6-12', 'NOT_SERVING');
    await assert.rejects(mesh.open(), code('NOT_SERVING'));
    mesh.refusals.clear();
    mesh.offers = [offer(0, 6), offer(6, 12, { bootId: '01' })];
    await mesh.open();
    assert.equal(mesh.opened.length, 1);
  });

  it('asks again before it says that there is no route', async () => {
    mesh.offers = [offer(0, 6)];
    await assert.rejects(mesh.open(), code('NO_ROUTE'));
    assert.equal(mesh.lookUps, 1, 'an answer of this moment is not asked for twice');
    mesh.offers.push(offer(6, 12));
    await mesh.open();
    assert.equal(mesh.lookUps, 2);
  });

  it('remembers what it has found for a while', async () => {
    await mesh.open();
    await mesh.open();
    assert.equal(mesh.lookUps, 1);
  });

  it('tries once more what broke off, when nobody else is left', async () => {
    mesh.refusals.set('peer-6-12', 'STREAM_ENDED');
    await assert.rejects(mesh.open(), code('STREAM_ENDED'));
    assert.equal(mesh.opens, 2);
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    await mesh.open();
    assert.equal(mesh.opens, 3, 'and nothing that broke off before while there is another');
  });

  it('tries at most three plans', async () => {
    for (const peerId of ['a', 'b', 'c', 'd']) {
      mesh.offers.push(offer(6, 12, { peerId }));
      mesh.refusals.set(peerId, 'NOT_SERVING');
    }
    mesh.refusals.set('peer-6-12', 'NOT_SERVING');
    await assert.rejects(mesh.open(), code('NOT_SERVING'));
    assert.equal(mesh.opens, 3);
  });

  it('does not ask others when the fault is the client\'s own', async () => {
    mesh.refusals.set('peer-6-12', 'CONTEXT_FULL');
    mesh.offers.push(offer(6, 12, { peerId: 'spare', lanes: 3 }));
    await assert.rejects(mesh.open(), code('CONTEXT_FULL'));
    assert.equal(mesh.opens, 1);
  });

  it('ends with the reason of the signal, or at its own deadline', async () => {
    const stopping = AbortSignal.abort(new MeshnetError('DRAINING'));
    await assert.rejects(mesh.router.open(MODEL, WISH, { signal: stopping }), code('DRAINING'));
    const hanging = new Router({
      finder: {
        find: (_digest, { signal }) => new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => { reject(new MeshnetError('DEADLINE_EXCEEDED')); });
        }),
        remembers: () => false, evict: () => undefined, evicted: () => new Set(),
      },
      opener: { open: () => Promise.reject(new Error('not reached')) },
    }, { openMs: 20 });
    await assert.rejects(hanging.open(MODEL, WISH, options), (err) => isMeshnetError(err, 'DEADLINE_EXCEEDED') &&
      err.details['timeoutMs'] === 20);
  });
});
