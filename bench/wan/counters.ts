import { z } from 'zod';

/** One direction between two namespaces, since the line began or its counters were reset. */
export interface PairCounters {
  readonly from: number;
  readonly to: number;
  /** Handed to the receiving namespace; acknowledgements and whatever was sent again are in it. */
  readonly packets: number;
  /** Of IP packets, headers included. */
  readonly bytes: number;
  readonly tcpPayloadBytes: number;
  /** No room in the queue of a limited rate. */
  readonly droppedPackets: number;
  readonly droppedBytes: number;
  /** The receiving namespace's device took them not. */
  readonly refusedPackets: number;
  readonly queuePeakBytes: number;
}

export interface Counters {
  readonly pairs: readonly PairCounters[];
  readonly namespaces: readonly {
    /** No namespace has that address. */
    readonly unroutablePackets: number;
    /** No whole IPv4 packet. */
    readonly malformedPackets: number;
    /** Lost before the line could read them; never reset. */
    readonly deviceDrops: number;
  }[];
  /** Under way now. */
  readonly heldBytes: number;
  /** How long after its time a packet was handed over. */
  readonly lateMeanUs: number;
  readonly lateMaxUs: number;
  /** Of the line's process since it began. */
  readonly cpuMs: number;
}

const count = z.int().min(0);

const Pair = z.object({
  from: count, to: count, packets: count, bytes: count, tcp_payload_bytes: count, dropped_packets: count, dropped_bytes: count,
  refused_packets: count, queue_peak_bytes: count,
}).transform((pair): PairCounters => ({
  from: pair.from,
  to: pair.to,
  packets: pair.packets,
  bytes: pair.bytes,
  tcpPayloadBytes: pair.tcp_payload_bytes,
  droppedPackets: pair.dropped_packets,
  droppedBytes: pair.dropped_bytes,
  refusedPackets: pair.refused_packets,
  queuePeakBytes: pair.queue_peak_bytes,
}));

/** What the line's process answers to `{"do":"counters"}`. */
export const CountersAnswer = z.object({
  pairs: z.array(Pair),
  namespaces: z.array(z.object({ unroutable_packets: count, malformed_packets: count, device_drops: count })),
  held_bytes: count,
  late_mean_us: z.number(),
  late_max_us: z.number(),
  cpu_ms: z.number(),
}).transform((answer): Counters => ({
  pairs: answer.pairs,
  namespaces: answer.namespaces.map((one) => ({
    unroutablePackets: one.unroutable_packets, malformedPackets: one.malformed_packets, deviceDrops: one.device_drops,
  })),
  heldBytes: answer.held_bytes,
  lateMeanUs: answer.late_mean_us,
  lateMaxUs: answer.late_max_us,
  cpuMs: answer.cpu_ms,
}));

/** Of packets, everything that the line lost; with a rate it may lose some, without one it must lose none. */
export function lostPackets(counters: Counters): number {
  const inside = counters.namespaces.map(({ unroutablePackets, malformedPackets, deviceDrops }) => unroutablePackets + malformedPackets + deviceDrops);
  const between = counters.pairs.map(({ droppedPackets, refusedPackets }) => droppedPackets + refusedPackets);
  return [...inside, ...between].reduce((sum, n) => sum + n, 0);
}
