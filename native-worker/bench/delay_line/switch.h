// Switch: takes packets from every namespace's device, holds them in the link to their destination, hands them over.
// Threads: not safe; owned by the loop. Nothing that a packet holds can end it: what it cannot use is counted.
#pragma once

#include <cstdint>
#include <vector>

#include "link.h"
#include "namespace.h"

namespace meshnet::delay {

constexpr size_t kMinNamespaces = 2;
constexpr size_t kMaxNamespaces = 8;
constexpr size_t kMaxPacketBytes = 65535;
constexpr size_t kBatchPackets = 64;             // from one device before others have their turn
constexpr uint64_t kMaxHeldBytes = 256ull << 20;  // under way in all links together

int64_t NowNs();

class Switch {
 public:
  struct IngressCounters {
    uint64_t unroutable_packets = 0;  // no namespace has that address
    uint64_t malformed_packets = 0;   // not a whole IPv4 packet
  };
  struct Lateness {
    uint64_t packets = 0;
    int64_t total_ns = 0, max_ns = 0;  // hand-over after the planned time
  };

  // A link for every ordered pair, all with the same settings.
  Switch(std::vector<Namespace> namespaces, const LinkSettings & settings);

  // At most kBatchPackets that wait in this namespace's device.
  void Receive(size_t from);
  // Hands over at most kBatchPackets that are due; gives the time of the next one, kNever without one.
  int64_t Deliver();

  const std::vector<Namespace> & namespaces() const { return namespaces_; }
  // REQUIRES: both below namespaces().size(), and different.
  Link & link(size_t from, size_t to) { return links_[from * namespaces_.size() + to]; }
  const IngressCounters & ingress(size_t from) const { return ingress_[from]; }
  const Lateness & lateness() const { return lateness_; }
  uint64_t held_bytes() const { return held_bytes_; }
  void ResetCounters();

 private:
  size_t IndexOf(uint32_t address) const;
  void Take(size_t from, size_t n);
  Link * Earliest(size_t * to);

  std::vector<Namespace> namespaces_;
  std::vector<Link> links_;  // [from][to]
  std::vector<IngressCounters> ingress_;
  Lateness lateness_;
  uint64_t held_bytes_ = 0;
  std::vector<char> buffer_;
};

}  // namespace meshnet::delay
