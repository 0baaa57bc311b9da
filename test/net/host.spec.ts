import assert from 'node:assert/strict';
import { generateIdentity } from '../../src/net/identity.ts';
import type { Host } from '../../src/net/host.ts';
import { ManualClock } from './manual-clock.ts';
import { ECHO, rawServer, rawSocket, rejects, Rig, SOON, targetOf } from './rig.ts';

const peersOf = (host: Host, count: number): Promise<void> => new Promise((resolve) => {
  host.onPeers((now) => now === count && resolve());
});

describe('net/host', () => {
  const rig = new Rig();
  afterEach(() => rig.stop());

  it('listens, gives its addresses with its peer id, and can be started again after its stop', async () => {
    const host = await rig.host();
    assert.match(host.addresses()[0] ?? '', new RegExp(`^/ip4/127\\.0\\.0\\.1/tcp/[1-9]\\d*/p2p/${host.peerId}$`));
    await host.start(SOON);
    await host.stop(SOON);
    await host.stop(SOON);
    await rejects(host.open(targetOfNobody(host.peerId), ECHO, SOON), 'ALREADY_STOPPED');
    await host.start(SOON);
    assert.equal(host.addresses().length, 1);
  });

  it('tells what it is told to announce', async () => {
    const host = await rig.host({ announce: ['/ip4/10.0.0.9/tcp/9', '/ip4/9.9.9.9/tcp/9'] });
    assert.deepEqual(host.addresses().map((address) => address.split('/')[2]), ['9.9.9.9', '10.0.0.9']);
  });

  it('refuses to start on an address that is taken or that nobody understands', async () => {
    const port = await rawServer(rig);
    await rejects(rig.host({ listen: [`/ip4/127.0.0.1/tcp/${port}`] }), 'ADDRESS_IN_USE');
    await rejects(rig.host({ listen: ['127.0.0.1:80'] }), 'CONFIG_INVALID');
  });

  it('starts without its bootstraps and connects when one comes', async () => {
    const identity = await generateIdentity();
    const clock = new ManualClock();
    const away = await rig.host({}, { identity });
    const [address = ''] = away.addresses();
    await away.stop(SOON);
    const listen = [address.replace(/\/p2p\/.*/, '')];
    const node = await rig.host({ bootstrap: [address] }, { clock, random: () => 1 });
    assert.equal(node.peerCount, 0);
    const connected = peersOf(node, 1);
    const back = await rig.host({ listen }, { identity });
    const ticking = setInterval(() => clock.advance(1000), 10);
    await connected;
    clearInterval(ticking);
    assert.ok(node.isConnected(back.peerId));
    const lost = peersOf(node, 0);
    await back.stop(SOON);
    await lost;
  });

  it('opens streams over the connection that there is, whatever addresses are named', async () => {
    const { hosts: [here, there] } = await rig.streams();
    await here.open({ peerId: there.peerId }, ECHO, SOON);
    await here.open({ peerId: there.peerId, addresses: ['/ip4/127.0.0.1/tcp/1'] }, ECHO, SOON);
    assert.equal(here.peerCount, 1);
  });

  it('opens many streams at once to a peer that it has just met', async () => {
    const [there, here] = [await rig.host(), await rig.host()];
    const wide = { ...ECHO, maxInboundStreams: 64, maxOutboundStreams: 64, maxStreamsPerPeer: 64, maxStreams: 64 };
    await there.handle(wide, async (stream) => {
      await stream.writeBytes(Uint8Array.of(1), SOON);
    });
    const streams = await Promise.all(Array.from({ length: 48 }, () => here.open(targetOf(there), wide, SOON)));
    const answers = await Promise.all(streams.map((stream) => stream.readBytes(1, SOON)));
    assert.ok(answers.every((answer) => answer?.[0] === 1));
    assert.equal(here.peerCount, 1);
  });

  it('says why a peer cannot be reached', async () => {
    const [here, there, other] = [await rig.host(), await rig.host(), await rig.host()];
    const at = (peerId: string, addresses: string[]) => here.open({ peerId, addresses }, ECHO, SOON);
    await rejects(at(there.peerId, there.addresses()), 'PEER_UNREACHABLE', { reason: 'protocol' });
    await rejects(at('nobody', there.addresses()), 'PEER_UNREACHABLE', { reason: 'peer-id' });
    await rejects(at(here.peerId, here.addresses()), 'PEER_UNREACHABLE');
    const { peerId } = await generateIdentity();
    const address = other.addresses()[0]?.replace(/\/p2p\/.*/, '') ?? '';
    await rejects(at(peerId, [address]), 'PEER_UNREACHABLE');
    await assert.rejects(here.open({ peerId, addresses: other.addresses() }, ECHO, { timeoutMs: 100 }));
    const port = await rawServer(rig, (socket) => socket.destroy());
    await rejects(at(peerId, [`/ip4/127.0.0.1/tcp/${port}`]), 'PEER_UNREACHABLE', { reason: 'dial' });
  });

  it('does not dial a private address that a peer names, outside a private network', async () => {
    const here = await rig.host({ privateNetwork: false });
    const there = await rig.host();
    await rejects(here.open(targetOf(there), ECHO, SOON), 'PEER_UNREACHABLE', { reason: 'denied' });
  });

  it('stops waiting at the deadline and at the signal when the other side accepts and is silent', async () => {
    const here = await rig.host();
    const port = await rawServer(rig);
    const { peerId } = await generateIdentity();
    const silent = { peerId, addresses: [`/ip4/127.0.0.1/tcp/${port}`] };
    await rejects(here.open(silent, ECHO, { timeoutMs: 60 }), 'DEADLINE_EXCEEDED');
    const controller = new AbortController();
    const opening = here.open(silent, ECHO, { signal: controller.signal });
    controller.abort();
    await rejects(opening, 'CANCELLED');
  });

  it('serves on after garbage and after connections that say nothing', async () => {
    const { hosts: [here, there] } = await rig.streams();
    for (let i = 0; i < 8; i++) {
      await rawSocket(rig, there);
      const socket = await rawSocket(rig, there);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.end(Buffer.alloc(70_000, i * 31));
      socket.resume();
      await closed;
    }
    const accepted = Promise.withResolvers<void>();
    await there.handle(ECHO, async () => accepted.resolve());
    await here.open(targetOf(there), ECHO, SOON);
    await accepted.promise;
  });

  it('bounds the streams of a protocol over all peers', async () => {
    const there = await rig.host();
    await there.handle({ ...ECHO, maxStreams: 2 }, async () => undefined);
    const open = async () => (await rig.host()).open(targetOf(there), ECHO, SOON);
    const first = await open();
    await open();
    await rejects((await open()).readBytes(1, SOON), 'STREAM_ENDED', { reason: 'reset' });
    const freed = new Promise<void>((resolve) => first.onClose(resolve));
    first.abort();
    await freed;
  });

  it('closes the connections of a banned peer and takes no new ones', async () => {
    const { hosts: [here, there], client } = await rig.streams();
    const gone = new Promise<void>((resolve) => client.onClose(resolve));
    const target = targetOf(there);
    await there.ban(here.peerId, 60_000);
    await gone;
    const again = here.open(target, ECHO, SOON).then((stream) => stream.readBytes(1, SOON));
    await assert.rejects(again);
  });

  it('resets a stream whose handler throws, and keeps the others', async () => {
    const { client, server, hosts: [here, there] } = await rig.streams();
    await there.handle(ECHO, async () => {
      throw new RangeError('a fault of ours');
    });
    const other = await here.open(targetOf(there), ECHO, SOON);
    await rejects(other.readBytes(1, SOON), 'STREAM_ENDED', { reason: 'reset' });
    await client.writeBytes(Uint8Array.of(1), SOON);
    assert.equal((await server.readBytes(1, SOON))?.[0], 1);
  });
});

function targetOfNobody(peerId: string) {
  return { peerId, addresses: [] };
}
