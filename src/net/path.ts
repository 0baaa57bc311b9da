import type { Connection } from '@libp2p/interface';
import { PathKind } from '../proto/peer_pb.js';

/** How bytes of this connection travel. */
export function pathOf(connection: Pick<Connection, 'remoteAddr' | 'limits'>): PathKind {
  const names = connection.remoteAddr.getComponents().map(({ name }) => name);
  // A punched connection is signalled over a relay and has both in its address, but no limits.
  if (names.includes('webrtc') || names.includes('webrtc-direct')) {
    return PathKind.WEBRTC;
  }
  return connection.limits !== undefined || names.includes('p2p-circuit') ? PathKind.RELAY : PathKind.LIBP2P;
}
