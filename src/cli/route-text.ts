import type { RouteSummary } from '../domain/route.ts';

/** A route in one line per stage: peer, layers, how frames reach it. */
export function formatRoute(route: RouteSummary | undefined): string {
  if (route === undefined) {
    return 'route unknown';
  }
  return route.stages.map(({ peer, layers: [first, last], path }, stage) =>
    `stage ${stage}  ${shortPeer(peer)}  layers ${first}-${last}  ${path}`).join('\n');
}

/** Peer ids share their first characters; the last eight tell them apart. */
export function shortPeer(peerId: string): string {
  return peerId.length > 12 ? `…${peerId.slice(-8)}` : peerId;
}
