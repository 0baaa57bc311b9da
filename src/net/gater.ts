import { isIPv4, isIPv6 } from 'node:net';
import type { Connection, ConnectionGater, MultiaddrConnection, PeerId } from '@libp2p/interface';
import { isPrivate } from '@libp2p/utils';
import type { Multiaddr } from '@multiformats/multiaddr';
import { LRUCache } from 'lru-cache';
import type { Clock } from './clock.ts';
import { guard, isNoise } from './frame-guard.ts';

/** Peers under a ban at once; beyond it the oldest ban ends early. */
const BANS = 4096;

export interface GaterInit {
  /** Connections from one IPv4 /24 or IPv6 /48, so that one network cannot fill the table. */
  maxConnectionsPerNetwork: number;
  /** A mesh on loopback or behind one router: private addresses are dialled and networks are not counted. */
  privateNetwork: boolean;
  /** Addresses that the operator named; they are dialled even when they are private. */
  allowedAddresses: readonly string[];
  connections(): readonly Connection[];
  clock: Clock;
}

/**
 * Who may connect. Peers name addresses for us to dial, so that an address inside somebody's home network is refused
 * unless the operator has named it.
 */
export class Gater implements ConnectionGater {
  readonly #init: GaterInit;
  readonly #allowed: ReadonlySet<string>;
  readonly #bannedUntil = new LRUCache<string, number>({ max: BANS });

  constructor(init: GaterInit) {
    this.#init = init;
    this.#allowed = new Set(init.allowedAddresses.map(withoutPeerId));
  }

  ban(peerId: string, ms: number): void {
    this.#bannedUntil.set(peerId, this.#init.clock.now() + ms);
  }

  isBanned(peerId: string): boolean {
    const until = this.#bannedUntil.get(peerId);
    if (until === undefined) {
      return false;
    }
    if (until > this.#init.clock.now()) {
      return true;
    }
    this.#bannedUntil.delete(peerId);
    return false;
  }

  readonly denyInboundConnection = (connection: MultiaddrConnection): boolean => {
    guard(connection, isNoise);
    return false;
  };

  readonly denyOutboundConnection = (_peer: PeerId, connection: MultiaddrConnection): boolean => {
    guard(connection, isNoise);
    return false;
  };

  readonly denyDialPeer = (peer: PeerId): boolean => this.isBanned(peer.toString());

  readonly denyDialMultiaddr = (address: Multiaddr): boolean =>
    !this.#init.privateNetwork && !this.#allowed.has(withoutPeerId(address.toString())) && isPrivate(address);

  readonly denyInboundEncryptedConnection = (peer: PeerId, connection: MultiaddrConnection): boolean =>
    this.isBanned(peer.toString()) || this.#isNetworkFull(connection.remoteAddr);

  readonly denyOutboundEncryptedConnection = (peer: PeerId): boolean => this.isBanned(peer.toString());

  #isNetworkFull(address: Multiaddr): boolean {
    const network = networkOf(address);
    if (this.#init.privateNetwork || network === undefined) {
      return false;
    }
    const open = this.#init.connections().filter((connection) => networkOf(connection.remoteAddr) === network);
    return open.length >= this.#init.maxConnectionsPerNetwork;
  }
}

/** The IPv4 /24 or IPv6 /48 of an address; nothing when it has no IP address or comes through a relay. */
export function networkOf(address: Multiaddr): string | undefined {
  const parts = address.getComponents();
  if (parts.some(({ name }) => name === 'p2p-circuit')) {
    return undefined;
  }
  const ip = parts.find(({ name }) => name === 'ip4' || name === 'ip6')?.value ?? '';
  if (isIPv4(ip)) {
    return ip.split('.').slice(0, 3).join('.');
  }
  return isIPv6(ip) ? groups(ip).slice(0, 3).join(':') : undefined;
}

/** The groups of an IPv6 address, with those that `::` leaves out. */
function groups(ip: string): string[] {
  const [head = '', tail] = ip.toLowerCase().split('::');
  const left = head === '' ? [] : head.split(':');
  if (tail === undefined) {
    return left;
  }
  const right = tail === '' ? [] : tail.split(':');
  return [...left, ...Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0'), ...right];
}

function withoutPeerId(address: string): string {
  return address.replace(/\/p2p\/[^/]+$/, '');
}
