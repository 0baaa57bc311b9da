#include "link.h"

#include <algorithm>

namespace meshnet::delay {
namespace {

constexpr double kBitNs = 8e9;  // bits of a byte × nanoseconds of a second

}  // namespace

bool Link::Offer(int64_t now_ns, const char * data, size_t n, uint32_t tcp_payload_bytes) {
  int64_t sent_ns = now_ns;
  if (settings_.rate_bps > 0) {
    // What the transmitter still has to send is the time until it is free: no queue needs to be kept beside it.
    const double ns_per_byte = kBitNs / static_cast<double>(settings_.rate_bps);
    const int64_t begin_ns = std::max(now_ns, transmitter_free_ns_);
    const auto waiting = static_cast<uint64_t>(static_cast<double>(begin_ns - now_ns) / ns_per_byte);
    if (waiting + n > settings_.queue_bytes) {
      Drop(n);
      return false;
    }
    counters_.queue_peak_bytes = std::max<uint64_t>(counters_.queue_peak_bytes, waiting + n);
    transmitter_free_ns_ = begin_ns + static_cast<int64_t>(static_cast<double>(n) * ns_per_byte);
    sent_ns = transmitter_free_ns_;
  }
  last_departure_ns_ = std::max(last_departure_ns_, sent_ns + settings_.delay_us * 1000);
  held_.push_back({last_departure_ns_, tcp_payload_bytes, std::string(data, n)});
  return true;
}

void Link::Drop(size_t n) {
  counters_.dropped_packets += 1;
  counters_.dropped_bytes += n;
}

void Link::Pop(bool delivered) {
  const Held & held = held_.front();
  if (delivered) {
    counters_.packets += 1;
    counters_.bytes += held.packet.size();
    counters_.tcp_payload_bytes += held.tcp_payload_bytes;
  } else {
    counters_.refused_packets += 1;
  }
  held_.pop_front();
}

}  // namespace meshnet::delay
