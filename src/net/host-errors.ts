import { multiaddr } from '@multiformats/multiaddr';
import { MeshnetError } from '../errors.ts';
import { abortError } from './wait.ts';

/** What libp2p throws on a dial or a new stream, in our words. */
export function dialError(err: unknown, peer: string, signal: AbortSignal): MeshnetError {
  if (err instanceof MeshnetError) {
    return err;
  }
  if (signal.aborted) {
    return abortError(signal, `reaching ${peer}`);
  }
  const name = err instanceof Error ? err.name : 'unknown';
  if (name === 'TooManyOutboundProtocolStreamsError') {
    return new MeshnetError('RESOURCE_EXHAUSTED', 'too many streams to one peer', { cause: err, details: { peer } });
  }
  return new MeshnetError('PEER_UNREACHABLE', `the peer ${peer} cannot be reached`, {
    cause: err, details: { peer, reason: REASONS[name] ?? 'dial' },
  });
}

const REASONS: Readonly<Record<string, string>> = {
  UnsupportedProtocolError: 'protocol',
  DialDeniedError: 'denied',
  NoValidAddressesError: 'no-address',
  UnexpectedPeerError: 'other-peer',
  LimitedConnectionError: 'limited',
};

/** What libp2p throws when it cannot start. */
export function startError(err: unknown, listen: readonly string[]): MeshnetError {
  if (err instanceof MeshnetError) {
    return err;
  }
  const text = err instanceof Error ? err.message : String(err);
  if (text.includes('EADDRINUSE')) {
    return new MeshnetError('ADDRESS_IN_USE', 'a libp2p address is taken', { cause: err, details: { listen } });
  }
  return new MeshnetError('CONFIG_INVALID', `libp2p cannot listen: ${text.split('\n')[0]}`, {
    cause: err, details: { listen },
  });
}

/** @throws {MeshnetError} CONFIG_INVALID names the first that is no address */
export function assertMultiaddrs(field: string, addresses: readonly string[]): void {
  for (const address of addresses) {
    try {
      multiaddr(address);
    } catch (cause) {
      throw new MeshnetError('CONFIG_INVALID', `${address} is no multiaddr, such as /ip4/203.0.113.7/tcp/4001/p2p/PEERID`, {
        cause, details: { field },
      });
    }
  }
}
