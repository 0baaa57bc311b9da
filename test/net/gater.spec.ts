import assert from 'node:assert/strict';
import type { Connection, MultiaddrConnection } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { multiaddr } from '@multiformats/multiaddr';
import { Gater, networkOf } from '../../src/net/gater.ts';
import { generateIdentity } from '../../src/net/identity.ts';
import { ManualClock } from './manual-clock.ts';

const from = (address: string) => ({ remoteAddr: multiaddr(address) });

describe('net/gater', () => {
  let clock: ManualClock;
  let open: { remoteAddr: ReturnType<typeof multiaddr> }[];
  let peer: ReturnType<typeof peerIdFromString>;
  const gater = (privateNetwork = false) => new Gater({
    maxConnectionsPerNetwork: 2, privateNetwork, allowedAddresses: ['/ip4/192.168.1.5/tcp/4001/p2p/abc'],
    connections: () => open as unknown as Connection[], clock,
  });
  const denies = (one: Gater, address: string): boolean =>
    one.denyInboundEncryptedConnection(peer, from(address) as unknown as MultiaddrConnection);

  beforeEach(async () => {
    clock = new ManualClock();
    open = [];
    peer = peerIdFromString((await generateIdentity()).peerId);
  });

  it('dials no private address that a peer names, but those that the operator named', () => {
    const one = gater();
    const privates = [
      '/ip4/127.0.0.1/tcp/1', '/ip4/10.1.2.3/tcp/1', '/ip4/192.168.0.1/tcp/80', '/ip4/172.16.0.1/tcp/1', '/ip4/169.254.1.1/tcp/1',
      '/ip4/100.64.0.1/tcp/1', '/ip4/0.0.0.0/tcp/1', '/ip6/::1/tcp/1', '/ip6/fd00::1/tcp/1', '/ip6/fe80::1/tcp/1', '/ip6/::ffff:10.0.0.1/tcp/1',
      '/dns4/localhost/tcp/1',
    ];
    assert.deepEqual(privates.filter((address) => !one.denyDialMultiaddr(multiaddr(address))), []);
    assert.equal(one.denyDialMultiaddr(multiaddr('/ip4/8.8.8.8/tcp/4001')), false);
    assert.equal(one.denyDialMultiaddr(multiaddr(`/ip4/192.168.1.5/tcp/4001/p2p/${peer.toString()}`)), false);
    assert.equal(one.denyDialMultiaddr(multiaddr('/ip4/192.168.1.5/tcp/22')), true);
    assert.deepEqual(privates.filter((address) => gater(true).denyDialMultiaddr(multiaddr(address))), []);
  });

  it('takes so many connections of one network and no more', () => {
    const one = gater();
    open = [from('/ip4/9.9.9.1/tcp/1'), from('/ip4/9.9.9.2/tcp/2'), from('/ip6/2001:db8:1::5/tcp/1'), from('/ip6/2001:db8:1:9::6/tcp/1')];
    assert.equal(denies(one, '/ip4/9.9.9.77/tcp/3'), true);
    assert.equal(denies(one, '/ip4/9.9.8.77/tcp/3'), false);
    assert.equal(denies(one, '/ip6/2001:db8:1:ffff::1/tcp/3'), true);
    assert.equal(denies(one, '/ip6/2001:db8:2::1/tcp/3'), false);
    assert.equal(denies(gater(true), '/ip4/9.9.9.77/tcp/3'), false);
  });

  it('names the network of an address', () => {
    assert.equal(networkOf(multiaddr('/ip4/1.2.3.4/tcp/1')), '1.2.3');
    assert.equal(networkOf(multiaddr('/ip6/::1/tcp/1')), '0:0:0');
    assert.equal(networkOf(multiaddr('/ip6/2001:db8::/tcp/1')), '2001:db8:0');
    assert.equal(networkOf(multiaddr('/dns4/example.org/tcp/1')), undefined);
    assert.equal(networkOf(multiaddr(`/ip4/1.2.3.4/tcp/1/p2p/${peer.toString()}/p2p-circuit`)), undefined);
  });

  it('lets a banned peer neither in nor be dialled, until the ban ends', () => {
    const one = gater();
    one.ban(peer.toString(), 1000);
    assert.equal(one.denyDialPeer(peer), true);
    assert.equal(one.denyOutboundEncryptedConnection(peer), true);
    assert.equal(denies(one, '/ip4/9.9.9.9/tcp/1'), true);
    clock.advance(1001);
    assert.equal(one.denyDialPeer(peer), false);
    assert.equal(denies(one, '/ip4/9.9.9.9/tcp/1'), false);
  });
});
