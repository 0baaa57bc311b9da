#include "packet.h"

namespace meshnet::delay {
namespace {

// RFC 791 and RFC 9293.
constexpr size_t kMinIpHeader = 20;
constexpr size_t kMinTcpHeader = 20;
constexpr uint8_t kTcp = 6;
constexpr uint32_t kFragmentOffset = 0x1fff;

uint32_t Big16(const uint8_t * at) { return static_cast<uint32_t>(at[0]) << 8 | at[1]; }
uint32_t Big32(const uint8_t * at) { return Big16(at) << 16 | Big16(at + 2); }

uint32_t TcpPayload(const uint8_t * segment, size_t n) {
  if (n < kMinTcpHeader) return 0;
  const size_t header = static_cast<size_t>(segment[12] >> 4) * 4;
  return header < kMinTcpHeader || header > n ? 0 : static_cast<uint32_t>(n - header);
}

}  // namespace

std::optional<PacketFacts> ReadPacket(const uint8_t * data, size_t n) {
  if (n < kMinIpHeader || data[0] >> 4 != 4) return std::nullopt;
  const size_t header = static_cast<size_t>(data[0] & 0xf) * 4;
  if (header < kMinIpHeader || header > n || Big16(data + 2) != n) return std::nullopt;
  PacketFacts facts;
  facts.destination = Big32(data + 16);
  if (data[9] != kTcp) return facts;
  // A fragment after the first has no TCP header.
  const bool first = (Big16(data + 6) & kFragmentOffset) == 0;
  facts.tcp_payload_bytes = first ? TcpPayload(data + header, n - header) : static_cast<uint32_t>(n - header);
  return facts;
}

}  // namespace meshnet::delay
