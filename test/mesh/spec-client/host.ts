/** A libp2p host of its own: dials only, and is a client of the mesh's DHT. */
import { noise } from '@chainsafe/libp2p-noise';
import { identify } from '@libp2p/identify';
import type { Libp2p, PeerId } from '@libp2p/interface';
import { kadDHT, passthroughMapper } from '@libp2p/kad-dht';
import { ping } from '@libp2p/ping';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { createLibp2p } from 'libp2p';
import { MessageStream } from './message-stream.ts';

export function createHost(): Promise<Libp2p> {
  return createLibp2p({
    addresses: { listen: [] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    services: {
      identify: identify(),
      ping: ping(),
      dht: kadDHT({ protocol: '/meshnet/kad/1.0.0', clientMode: true, peerInfoMapper: passthroughMapper }),
    },
  });
}

export async function openStream(
  host: Libp2p,
  peer: PeerId,
  protocol: string,
  signal: AbortSignal,
): Promise<MessageStream> {
  return new MessageStream(await host.dialProtocol(peer, protocol, { signal }));
}
