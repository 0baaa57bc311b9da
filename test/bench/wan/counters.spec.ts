import assert from 'node:assert/strict';
import { CountersAnswer, lostPackets } from '../../../bench/wan/counters.ts';

const pair = {
  from: 0, to: 1, packets: 10, bytes: 1000, tcp_payload_bytes: 480, dropped_packets: 2, dropped_bytes: 200, refused_packets: 1,
  queue_peak_bytes: 300,
};
const answer = {
  pairs: [pair, { ...pair, from: 1, to: 0, dropped_packets: 0, refused_packets: 0 }],
  namespaces: [
    { unroutable_packets: 4, malformed_packets: 8, device_drops: 16 },
    { unroutable_packets: 0, malformed_packets: 0, device_drops: 0 },
  ],
  held_bytes: 5, late_mean_us: 0.5, late_max_us: 20, cpu_ms: 3,
};

describe('bench/wan/counters', () => {
  it('reads what the line answers', () => {
    const { pairs, heldBytes, lateMaxUs, cpuMs } = CountersAnswer.parse(answer);
    assert.deepEqual(pairs[0], {
      from: 0, to: 1, packets: 10, bytes: 1000, tcpPayloadBytes: 480, droppedPackets: 2, droppedBytes: 200, refusedPackets: 1,
      queuePeakBytes: 300,
    });
    assert.deepEqual([heldBytes, lateMaxUs, cpuMs], [5, 20, 3]);
  });

  it('adds up all ways to lose a packet', () => {
    assert.equal(lostPackets(CountersAnswer.parse(answer)), 2 + 1 + 4 + 8 + 16);
  });

  it('refuses an answer that lacks a counter', () => {
    assert.equal(CountersAnswer.safeParse({ ...answer, held_bytes: undefined }).success, false);
  });
});
