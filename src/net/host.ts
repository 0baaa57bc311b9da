import type { Connection, Libp2p, PeerId } from '@libp2p/interface';
import { peerIdFromString } from '@libp2p/peer-id';
import { isPrivate } from '@libp2p/utils';
import { multiaddr, type Multiaddr } from '@multiformats/multiaddr';
import type { KadDHT } from '@libp2p/kad-dht';
import { createLibp2p } from 'libp2p';
import { MeshnetError } from '../errors.ts';
import { Bootstrap } from './bootstrap.ts';
import { systemClock, type Clock } from './clock.ts';
import { Gater } from './gater.ts';
import { assertMultiaddrs, dialError, startError } from './host-errors.ts';
import { HOST_LIMITS } from './host-limits.ts';
import { isPeerId, type Identity } from './identity.ts';
import { Inbound, type StreamHandler } from './inbound.ts';
import { libp2pOptions, type Services } from './libp2p-options.ts';
import { silentLog, type NetLog } from './log.ts';
import { pathOf } from './path.ts';
import type { PeerTarget, ProtocolSpec } from './protocols.ts';
import { signalOf, within, type WaitOptions } from './wait.ts';
import { MessageStream } from './wire.ts';

export interface HostComponents {
  identity: Identity;
  log?: NetLog;
  /** Of bans and bootstrap pauses. */
  clock?: Clock;
  random?: () => number;
}

export interface HostInit {
  /** Multiaddrs. @default ['/ip4/127.0.0.1/tcp/0'] */
  listen?: readonly string[];
  /** What others are told instead of what is listened on. @default [] */
  announce?: readonly string[];
  /** Dialled again for ever; nothing waits for them. @default [] */
  bootstrap?: readonly string[];
  /** Whether to answer DHT queries; 'auto' does once a public address is known. @default 'auto' */
  dht?: 'auto' | 'client' | 'server';
  /** All nodes are on one machine or in one network: private addresses are passed on and dialled. @default false */
  privateNetwork?: boolean;
}

/** What other parts of a node need of it. */
export interface StreamOpener {
  open(target: PeerTarget, protocol: ProtocolSpec, options: WaitOptions): Promise<MessageStream>;
}
export interface StreamAcceptor {
  handle(protocol: ProtocolSpec, handler: StreamHandler): Promise<void>;
}

type Node = Libp2p<Services>;

/** The libp2p peer of this node: connections, streams and the DHT's life. */
export class Host implements StreamOpener, StreamAcceptor {
  readonly peerId: string;
  readonly #identity: Identity;
  readonly #init: Required<HostInit>;
  readonly #log: NetLog;
  readonly #gater: Gater;
  readonly #bootstrap: Bootstrap;
  readonly #inbounds = new Map<string, { spec: ProtocolSpec; inbound: Inbound }>();
  readonly #peerListeners = new Set<(count: number) => void>();
  #node: Node | undefined;

  constructor({ identity, log = silentLog, clock = systemClock, random = Math.random }: HostComponents, init: HostInit = {}) {
    this.#identity = identity;
    this.#log = log;
    this.peerId = identity.peerId;
    this.#init = {
      listen: ['/ip4/127.0.0.1/tcp/0'], announce: [], bootstrap: [], dht: 'auto', privateNetwork: false, ...init,
    };
    this.#gater = new Gater({
      maxConnectionsPerNetwork: HOST_LIMITS.connectionsPerNetwork,
      privateNetwork: this.#init.privateNetwork,
      allowedAddresses: this.#init.bootstrap,
      connections: () => this.#node?.getConnections() ?? [],
      clock,
    });
    this.#bootstrap = new Bootstrap({
      dial: (address, options) => this.#dialAddress(address, options.signal),
      isConnected: (peerId) => this.isConnected(peerId),
      clock, random, log,
    }, this.#init.bootstrap);
  }

  /** Listens. Bootstraps are dialled afterwards. @throws {MeshnetError} CONFIG_INVALID, ADDRESS_IN_USE, DEADLINE_EXCEEDED */
  async start(options: WaitOptions): Promise<void> {
    if (this.#node !== undefined) {
      return;
    }
    const { listen, announce, dht, privateNetwork, bootstrap } = this.#init;
    assertMultiaddrs('bootstrap', bootstrap);
    assertMultiaddrs('announce', announce);
    let node: Node | undefined;
    try {
      node = await createLibp2p<Services>(libp2pOptions({
        identity: this.#identity, gater: this.#gater, listen, announce, dht, privateNetwork,
      }));
      this.#node = node;
      node.addEventListener('peer:connect', this.#onPeer);
      node.addEventListener('peer:disconnect', this.#onPeerGone);
      for (const { spec, inbound } of this.#inbounds.values()) {
        await this.#register(node, spec, inbound);
      }
      await within(Promise.resolve(node.start()), 'starting libp2p', options);
    } catch (err) {
      this.#node = undefined;
      await node?.stop();
      throw startError(err, listen);
    }
    this.#bootstrap.start();
  }

  /** Resets every stream, then closes every connection. Never throws; past the deadline the process may simply end. */
  async stop(options: WaitOptions): Promise<void> {
    const node = this.#node;
    if (node === undefined) {
      return;
    }
    this.#bootstrap.stop();
    const reason = new MeshnetError('CANCELLED', 'the node stops');
    for (const { inbound } of this.#inbounds.values()) {
      inbound.abortAll(reason);
    }
    try {
      await within(Promise.resolve(node.stop()), 'stopping libp2p', options);
    } catch (err) {
      this.#log.warn({ err: String(err) }, 'libp2p did not stop in order');
    }
    node.removeEventListener('peer:connect', this.#onPeer);
    node.removeEventListener('peer:disconnect', this.#onPeerGone);
    this.#node = undefined;
  }

  /** Multiaddrs that end in our peer id; what more peers can reach comes first. */
  addresses(): string[] {
    const distance = (address: Multiaddr): number =>
      isPrivate(address) ? 1 + Number(/^\/ip4\/127\.|^\/ip6\/::1\//.test(address.toString())) : 0;
    return this.#running().getMultiaddrs()
      .toSorted((a, b) => distance(a) - distance(b))
      .map((address) => address.toString());
  }

  get peerCount(): number {
    return this.#node?.getPeers().length ?? 0;
  }

  isConnected(peerId: string): boolean {
    return this.#node?.getPeers().some((peer) => peer.toString() === peerId) ?? false;
  }

  /** Calls with the number of connected peers whenever it changes. The function that is returned ends it. */
  onPeers(listener: (count: number) => void): () => void {
    this.#peerListeners.add(listener);
    return () => this.#peerListeners.delete(listener);
  }

  /** Closes its connections and refuses new ones for a while. */
  async ban(peerId: string, ms: number): Promise<void> {
    this.#gater.ban(peerId, ms);
    for (const connection of this.#node?.getConnections() ?? []) {
      if (connection.remotePeer.toString() === peerId) {
        connection.abort(new MeshnetError('CANCELLED', 'the peer is banned'));
      }
    }
  }

  /** For the provider records of this folder. */
  get dht(): KadDHT {
    return this.#running().services.dht;
  }

  /**
   * A stream to a peer, over an open connection or a new one.
   *
   * @throws {MeshnetError} PEER_UNREACHABLE with `details.reason`, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED, CANCELLED
   */
  async open(target: PeerTarget, protocol: ProtocolSpec, options: WaitOptions): Promise<MessageStream> {
    const node = this.#running();
    const signal = signalOf(options);
    try {
      const connection = await this.#connect(node, target, signal);
      const stream = await connection.newStream(protocol.id, {
        signal, maxOutboundStreams: protocol.maxOutboundStreams, runOnLimitedConnection: true,
      });
      return new MessageStream(stream, { remotePeer: connection.remotePeer.toString(), path: pathOf(connection) });
    } catch (err) {
      throw dialError(err, target.peerId, signal);
    }
  }

  /** Serves a protocol, before or after the start. */
  async handle(protocol: ProtocolSpec, handler: StreamHandler): Promise<void> {
    const inbound = new Inbound(protocol, handler, this.#log);
    this.#inbounds.set(protocol.id, { spec: protocol, inbound });
    if (this.#node !== undefined) {
      await this.#register(this.#node, protocol, inbound);
    }
  }

  async #register(node: Node, spec: ProtocolSpec, inbound: Inbound): Promise<void> {
    await node.handle(spec.id, inbound.accept, {
      maxInboundStreams: spec.maxInboundStreams,
      maxOutboundStreams: spec.maxOutboundStreams,
      runOnLimitedConnection: true,
      force: true,
    });
  }

  async #connect(node: Node, { peerId, addresses = [] }: PeerTarget, signal: AbortSignal): Promise<Connection> {
    if (!isPeerId(peerId)) {
      throw new MeshnetError('PEER_UNREACHABLE', 'this is no peer id', { details: { peerId, reason: 'peer-id' } });
    }
    const id = peerIdFromString(peerId);
    const known = addresses.slice(0, HOST_LIMITS.addressesPerDial).flatMap((text) => addressOf(text, id));
    return await node.dial(known.length > 0 ? known : id, { signal });
  }

  async #dialAddress(address: string, signal: AbortSignal): Promise<string> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(HOST_LIMITS.dialMs)]);
    try {
      const connection = await this.#running().dial(multiaddr(address), { signal: limited });
      return connection.remotePeer.toString();
    } catch (err) {
      throw dialError(err, address, limited);
    }
  }

  #running(): Node {
    if (this.#node === undefined) {
      throw new MeshnetError('ALREADY_STOPPED', 'the libp2p host is not running');
    }
    return this.#node;
  }

  readonly #onPeer = (): void => {
    this.#tellPeers();
  };

  readonly #onPeerGone = ({ detail }: CustomEvent<PeerId>): void => {
    this.#bootstrap.onDisconnect(detail.toString());
    this.#tellPeers();
  };

  #tellPeers(): void {
    for (const listener of this.#peerListeners) {
      listener(this.peerCount);
    }
  }
}

/** With the peer id at its end; nothing when it cannot be read or names another peer. */
function addressOf(text: string, peer: PeerId): Multiaddr[] {
  try {
    const address = multiaddr(text);
    const last = address.getComponents().at(-1);
    if (last?.name !== 'p2p') {
      return [address.encapsulate(`/p2p/${peer.toString()}`)];
    }
    return last.value === peer.toString() ? [address] : [];
  } catch {
    return [];
  }
}
