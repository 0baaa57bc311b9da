import { noise } from '@chainsafe/libp2p-noise';
import type { Stream } from '@libp2p/interface';
import { tcp } from '@libp2p/tcp';
import { yamux } from '@libp2p/yamux';
import { multiaddr } from '@multiformats/multiaddr';
import { createLibp2p } from 'libp2p';
import type { Host } from '../../src/net/host.ts';
import type { Rig } from './rig.ts';

/** A stream of a peer that sends whatever bytes the test wants, without framing. */
export async function rawStream(rig: Rig, host: Host, protocol: string, encrypter = noise()): Promise<Stream> {
  const node = await createLibp2p({ transports: [tcp()], connectionEncrypters: [encrypter], streamMuxers: [yamux()] });
  rig.onStop(async () => {
    await node.stop();
  });
  return node.dialProtocol(multiaddr(host.addresses()[0]), protocol);
}

/** An encrypter that does not choose the muxer inside its handshake, as other implementations do not. */
export const plainNoise: ReturnType<typeof noise> = (components) => {
  const { peerId, privateKey, logger } = components;
  const encrypter = noise()({
    peerId, privateKey, logger,
    get upgrader() {
      return Object.create(components.upgrader, { getStreamMuxers: { value: () => new Map() } }) as typeof components.upgrader;
    },
  });
  const secure = encrypter.secureOutbound.bind(encrypter);
  encrypter.secureOutbound = (connection, options) => secure(connection, { ...options, skipStreamMuxerNegotiation: true });
  return encrypter;
};

/** How a stream ended for its owner. */
export function endOf(stream: Stream): Promise<Stream['status']> {
  return new Promise((resolve) => {
    if (stream.status !== 'open') {
      resolve(stream.status);
    }
    stream.addEventListener('close', () => resolve(stream.status));
  });
}
