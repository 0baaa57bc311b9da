import assert from 'node:assert/strict';
import { MeshnetError } from '../../src/errors.ts';
import { Bootstrap } from '../../src/net/bootstrap.ts';
import { silentLog } from '../../src/net/log.ts';
import { ManualClock } from './manual-clock.ts';

/** Everything that is waiting runs. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('net/bootstrap', () => {
  let clock: ManualClock;
  let dials: string[];
  let reachable: Set<string>;
  let connected: Set<string>;
  let random: number;
  let bootstrap: Bootstrap;

  function start(...addresses: string[]): void {
    bootstrap = new Bootstrap({
      dial: async (address) => {
        dials.push(address);
        if (!reachable.has(address)) {
          throw new MeshnetError('PEER_UNREACHABLE');
        }
        connected.add(`peer of ${address}`);
        return `peer of ${address}`;
      },
      isConnected: (peerId) => connected.has(peerId),
      clock, random: () => random, log: silentLog,
    }, addresses);
    bootstrap.start();
  }

  beforeEach(() => {
    clock = new ManualClock();
    [dials, reachable, connected, random] = [[], new Set(), new Set(), 1];
  });
  afterEach(() => bootstrap.stop());

  it('dials each address once, and an address that is named twice once', async () => {
    reachable = new Set(['a', 'b']);
    start('a', 'b', 'a');
    await settle();
    assert.deepEqual(dials, ['a', 'b']);
  });

  it('dials for ever, with pauses that double up to a minute', async () => {
    start('a');
    const pauses: number[] = [];
    for (let i = 0; i < 10; i++) {
      await settle();
      pauses.push(clock.pending[0] ?? -1);
      clock.advance(pauses[i] ?? 0);
    }
    assert.deepEqual(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60].map((seconds) => seconds * 1000));
    assert.equal(dials.length, 11);
  });

  it('varies the pauses by half', async () => {
    random = 0;
    start('a');
    await settle();
    assert.deepEqual(clock.pending, [500]);
  });

  it('dials a lost bootstrap again, from the first pause on', async () => {
    start('a');
    await settle();
    clock.advance(1000);
    await settle();
    reachable.add('a');
    clock.advance(2000);
    await settle();
    connected.clear();
    bootstrap.onDisconnect('peer of a');
    bootstrap.onDisconnect('somebody else');
    assert.deepEqual(clock.pending, [1000]);
    clock.advance(1000);
    await settle();
    assert.deepEqual(dials, ['a', 'a', 'a', 'a']);
    assert.ok(connected.has('peer of a'));
  });

  it('looks now and then whether a connection is still there, and dials only when it is not', async () => {
    reachable.add('a');
    start('a');
    await settle();
    clock.advance(30_000);
    await settle();
    assert.equal(dials.length, 1);
    connected.clear();
    clock.advance(30_000);
    await settle();
    assert.equal(dials.length, 2);
  });

  it('dials nobody after the stop', async () => {
    start('a');
    await settle();
    bootstrap.stop();
    bootstrap.onDisconnect('peer of a');
    assert.deepEqual(clock.pending, []);
    clock.advance(600_000);
    await settle();
    assert.equal(dials.length, 1);
  });
});
