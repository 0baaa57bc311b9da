// What the line reads of a packet: where it goes, and how much of it is payload of TCP.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace meshnet::delay {

struct PacketFacts {
  uint32_t destination = 0;  // host byte order
  uint32_t tcp_payload_bytes = 0;
};

// Nothing when it is no whole IPv4 packet. A TCP segment that is cut short or has a wrong header counts as no payload:
// the receiver's kernel is the one to refuse it.
std::optional<PacketFacts> ReadPacket(const uint8_t * data, size_t n);

}  // namespace meshnet::delay
