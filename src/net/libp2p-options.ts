import { identify, identifyPush, type Identify, type IdentifyPush } from '@libp2p/identify';
import { kadDHT, passthroughMapper, removePrivateAddressesMapper, type KadDHT } from '@libp2p/kad-dht';
import { ping, type Ping } from '@libp2p/ping';
import { tcp } from '@libp2p/tcp';
import type { Libp2pOptions } from 'libp2p';
import { DhtStore } from './dht-store.ts';
import { guardedNoise, guardedYamux } from './frame-guard.ts';
import type { Gater } from './gater.ts';
import { HOST_LIMITS as L } from './host-limits.ts';
import type { Identity } from './identity.ts';
import { KAD_PROTOCOL } from './protocols.ts';

/** Until the first look at our own surroundings in the DHT, for which everything else waits. */
const FIRST_SELF_QUERY_MS = 250;

export interface Services extends Record<string, unknown> {
  dht: KadDHT;
  identify: Identify;
  identifyPush: IdentifyPush;
  ping: Ping;
}

export interface Libp2pChoices {
  identity: Identity;
  gater: Gater;
  listen: readonly string[];
  announce: readonly string[];
  dht: 'auto' | 'client' | 'server';
  privateNetwork: boolean;
}

/** The whole of our libp2p: every limit is set here, none is left to a default that may change. */
export function libp2pOptions(choices: Libp2pChoices): Libp2pOptions<Services> {
  return {
    start: false,
    privateKey: choices.identity.privateKey,
    nodeInfo: { userAgent: 'meshnet' },
    addresses: { listen: [...choices.listen], announce: [...choices.announce] },
    connectionGater: choices.gater,
    datastore: new DhtStore(choices.identity.peerId),
    connectionManager: {
      maxConnections: L.connections,
      maxIncomingPendingConnections: choices.privateNetwork ? L.connections : L.pendingInbound,
      inboundConnectionThreshold: choices.privateNetwork ? L.inboundPerSecondPrivate : L.inboundPerSecond,
      maxParallelDials: L.parallelDials,
      maxDialQueueLength: L.queuedDials,
      maxPeerAddrsToDial: L.addressesPerDial,
      dialTimeout: L.dialMs,
      addressDialTimeout: L.addressDialMs,
      inboundUpgradeTimeout: L.inboundUpgradeMs,
      inboundStreamProtocolNegotiationTimeout: L.protocolNegotiationMs,
      outboundStreamProtocolNegotiationTimeout: L.protocolNegotiationMs,
      connectionCloseTimeout: L.connectionCloseMs,
      // Bootstraps are dialled again by our own rule, other peers when there is a use for them.
      reconnectRetries: 0,
    },
    connectionMonitor: {
      enabled: true,
      pingInterval: L.pingMs,
      pingTimeout: { maxTimeout: L.pingTimeoutMs },
      abortConnectionOnPingFailure: true,
    },
    transports: [tcp({
      maxConnections: L.sockets,
      inboundSocketInactivityTimeout: L.inboundSilenceMs,
      dialOpts: { noDelay: true },
      listenOpts: { noDelay: true },
    })],
    connectionEncrypters: [guardedNoise()],
    streamMuxers: [guardedYamux({
      maxInboundStreams: L.streamsPerConnection,
      maxOutboundStreams: L.streamsPerConnection,
      maxEarlyStreams: L.earlyStreams,
      maxMessageSize: L.muxerMessage,
      streamOptions: {
        maxStreamWindowSize: L.streamWindow,
        maxReadBufferLength: L.streamReadBuffer,
        maxWriteBufferLength: L.streamWriteBuffer,
      },
    })],
    services: {
      identify: identify({
        timeout: L.identifyMs, maxMessageSize: L.identifyBytes, maxObservedAddresses: L.observedAddresses,
        maxInboundStreams: 1, maxOutboundStreams: 1,
      }),
      identifyPush: identifyPush({
        timeout: L.identifyMs, maxMessageSize: L.identifyBytes, maxObservedAddresses: L.observedAddresses,
        maxInboundStreams: 1, maxOutboundStreams: 1,
      }),
      ping: ping({ maxInboundStreams: 2, maxOutboundStreams: 1, timeout: L.pingTimeoutMs }),
      dht: kadDHT({
        protocol: KAD_PROTOCOL,
        ...(choices.dht === 'auto' ? {} : { clientMode: choices.dht === 'client' }),
        peerInfoMapper: choices.privateNetwork ? passthroughMapper : removePrivateAddressesMapper,
        // We store provider records only: a value of any kind is refused, so that nobody keeps bytes here.
        validators: { pk: refuseValue },
        maxInboundStreams: L.dhtInboundStreams,
        maxOutboundStreams: L.dhtOutboundStreams,
        initialQuerySelfInterval: FIRST_SELF_QUERY_MS,
      }),
    },
  };
}

function refuseValue(): never {
  throw new RangeError('this DHT keeps no values');
}
