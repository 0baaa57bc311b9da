import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Host } from '../../src/net/host.ts';
import { ProviderRecords } from '../../src/net/provider-records.ts';
import type { PeerTarget } from '../../src/net/protocols.ts';
import { ManualClock } from './manual-clock.ts';
import { MODEL } from './records.ts';
import { collect, rejects, Rig, SOON } from './rig.ts';

const port = (host: Host): string => host.addresses()[0] as string;

describe('net/provider-records', () => {
  const rig = new Rig();
  afterEach(() => rig.stop());

  /** Asks until the DHT names so many: a record is on its way when `provide` returns. */
  async function find(records: ProviderRecords, count: number): Promise<PeerTarget[]> {
    const deadline = AbortSignal.timeout(SOON.timeoutMs);
    for (;;) {
      const found: PeerTarget[] = [];
      for await (const peer of records.findProviders(MODEL, { signal: deadline, timeoutMs: 200 })) {
        found.push(peer);
        if (found.length >= count) {
          return found;
        }
      }
      deadline.throwIfAborted();
    }
  }

  it('finds by the DHT the peers that provide a model, when only the bootstrap is known', async () => {
    const bootstrap = await rig.host({ dht: 'server' });
    const options = { bootstrap: [port(bootstrap)] };
    const [first, second, seeker] = [await rig.host(options), await rig.host(options), await rig.host(options)];
    assert.ok(await new ProviderRecords({ host: first }).provide(MODEL, SOON) > 0);
    assert.ok(await new ProviderRecords({ host: second }).provide(MODEL, SOON) > 0);
    const found = await find(new ProviderRecords({ host: seeker }), 2);
    assert.deepEqual(found.map(({ peerId }) => peerId).toSorted(), [first.peerId, second.peerId].toSorted());
    for (const { addresses } of found) {
      assert.ok(addresses?.some((address) => [port(first), port(second)].some((own) => own.startsWith(address))));
    }
    const nobody = await collect(new ProviderRecords({ host: seeker }).findProviders(new Uint8Array(32), SOON));
    assert.deepEqual(nobody, []);
  });

  it('tells the DHT again when a peer connects, because it may have forgotten', async () => {
    const forgetful = await rig.host({ dht: 'server' });
    const address = port(forgetful);
    const clock = new ManualClock();
    const provider = await rig.host({ bootstrap: [address] });
    const records = new ProviderRecords({ host: provider, clock });
    records.start();
    rig.onStop(() => records.stop());
    await records.provide(MODEL, SOON);
    const known = once((provider.dht as unknown as { routingTable: EventTarget }).routingTable, 'peer:add');
    const fresh = await rig.host({ dht: 'server', bootstrap: [port(provider)] });
    await known;
    clock.advance(2000);
    const found = await find(new ProviderRecords({ host: fresh }), 1);
    assert.equal(found[0]?.peerId, provider.peerId);
  });

  it('ends a look-up without peers at its deadline, and throws only when it is withdrawn', async () => {
    const alone = new ProviderRecords({ host: await rig.host() });
    assert.deepEqual(await collect(alone.findProviders(MODEL, { timeoutMs: 60 })), []);
    const controller = new AbortController();
    const looking = collect(alone.findProviders(MODEL, { signal: controller.signal }));
    controller.abort();
    await rejects(looking, 'CANCELLED');
    await rejects(alone.provide(MODEL, { timeoutMs: 60 }), 'DEADLINE_EXCEEDED');
    await alone.withdraw(MODEL, SOON);
  });
});
