/** Which seams a route has, and linking both ends of each. */
import type { Init } from './codec.ts';
import type { Lease } from './lease.ts';
import { SeamEnd, type Link, type SeamWish } from './messages.ts';

const LINK_MS = 10_000;

interface Seam {
  earlier: [stage: number, end: number];
  later: [stage: number, end: number];
}

export function seamsOf(nStages: number): Seam[] {
  const seams: Seam[] = [];
  for (let stage = 0; stage + 1 < nStages; stage += 1) {
    seams.push({ earlier: [stage, SeamEnd.TO_NEXT], later: [stage + 1, SeamEnd.TO_PREVIOUS] });
  }
  if (nStages >= 3) {
    seams.push({ earlier: [0, SeamEnd.LOOP], later: [nStages - 1, SeamEnd.LOOP] });
  }
  return seams;
}

/** What stage `stage` is told about its seams; `peers` in stage order, `self` is the gateway. */
export function wishesOf(stage: number, peers: string[], self: string): Init<typeof SeamWish>[] {
  const wishes: Init<typeof SeamWish>[] = stage === 0 ? [{ end: SeamEnd.ENTRY, peerId: self }] : [];
  for (const { earlier, later } of seamsOf(peers.length)) {
    if (earlier[0] === stage) {
      wishes.push({ end: earlier[1], peerId: peers[later[0]] ?? '' });
    }
    if (later[0] === stage) {
      wishes.push({ end: later[1], peerId: peers[earlier[0]] ?? '' });
    }
  }
  return wishes;
}

/** The end that can be dialled listens, and is linked first. Returns the path of each seam. */
export async function linkAll(leases: Lease[], signal: AbortSignal): Promise<number[]> {
  const paths: number[] = [];
  for (const { earlier, later } of seamsOf(leases.length)) {
    const ends = [later, earlier].map(([stage, end]) => ({ lease: leaseAt(leases, stage), end }));
    const listening = ends.findIndex(({ lease }) => lease.shard.advertisement.seamEndpoints.length > 0);
    const [listener, dialler] = listening === 1 ? ends.toReversed() : ends;
    if (listener === undefined || dialler === undefined) {
      throw new RangeError('a seam has two ends');
    }
    await listener.lease.link(linkTo(dialler.lease, dialler.end, listener.end, false), signal);
    paths.push(await dialler.lease.link(linkTo(listener.lease, listener.end, dialler.end, true), signal));
  }
  return paths;
}

function linkTo(other: Lease, otherEnd: number, end: number, dial: boolean): Init<typeof Link> {
  return {
    end,
    advertisement: other.shard.signed,
    seamCertificate: other.admitted.seamCertificate,
    ticket: other.ticket(otherEnd),
    dial,
    attempt: 1,
    deadlineMs: LINK_MS,
    peerLane: other.lane,
  };
}

function leaseAt(leases: Lease[], stage: number): Lease {
  const lease = leases[stage];
  if (lease === undefined) {
    throw new RangeError(`no stage ${stage}`);
  }
  return lease;
}
