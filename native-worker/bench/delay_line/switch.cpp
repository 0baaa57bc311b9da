#include "switch.h"

#include <time.h>

#include <algorithm>

#include "packet.h"

namespace meshnet::delay {

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

Switch::Switch(std::vector<Namespace> namespaces, const LinkSettings & settings)
    : namespaces_(std::move(namespaces)), links_(namespaces_.size() * namespaces_.size()), ingress_(namespaces_.size()),
      buffer_(kMaxPacketBytes) {
  for (Link & link : links_) link.Set(settings);
}

void Switch::Receive(size_t from) {
  for (size_t i = 0; i < kBatchPackets; ++i) {
    const ssize_t n = read(namespaces_[from].tun_fd(), buffer_.data(), buffer_.size());
    // Nothing more, or the device is down for now: it says so when it has something again.
    if (n <= 0) return;
    Take(from, static_cast<size_t>(n));
  }
}

void Switch::Take(size_t from, size_t n) {
  const int64_t now = NowNs();
  const auto facts = ReadPacket(reinterpret_cast<const uint8_t *>(buffer_.data()), n);
  if (!facts) {
    ingress_[from].malformed_packets += 1;
    return;
  }
  const size_t to = IndexOf(facts->destination);
  if (to == namespaces_.size() || to == from) {
    ingress_[from].unroutable_packets += 1;
    return;
  }
  if (held_bytes_ + n > kMaxHeldBytes) {
    link(from, to).Drop(n);
  } else if (link(from, to).Offer(now, buffer_.data(), n, facts->tcp_payload_bytes)) {
    held_bytes_ += n;
  }
}

int64_t Switch::Deliver() {
  for (size_t i = 0; i < kBatchPackets; ++i) {
    size_t to = 0;
    Link * const link = Earliest(&to);
    if (link == nullptr) return kNever;
    const int64_t late = NowNs() - link->next_departure_ns();
    if (late < 0) return link->next_departure_ns();
    const std::string & packet = link->front().packet;
    const ssize_t written = write(namespaces_[to].tun_fd(), packet.data(), packet.size());
    held_bytes_ -= packet.size();
    link->Pop(written >= 0);
    lateness_.packets += 1;
    lateness_.total_ns += late;
    lateness_.max_ns = std::max(lateness_.max_ns, late);
  }
  size_t to = 0;
  const Link * const next = Earliest(&to);
  return next == nullptr ? kNever : next->next_departure_ns();
}

void Switch::ResetCounters() {
  for (Link & link : links_) link.ResetCounters();
  std::fill(ingress_.begin(), ingress_.end(), IngressCounters{});
  lateness_ = {};
}

size_t Switch::IndexOf(uint32_t address) const {
  size_t i = 0;
  while (i < namespaces_.size() && namespaces_[i].address() != address) ++i;
  return i;
}

Link * Switch::Earliest(size_t * to) {
  Link * earliest = nullptr;
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i].next_departure_ns() == kNever) continue;
    if (earliest != nullptr && links_[i].next_departure_ns() >= earliest->next_departure_ns()) continue;
    earliest = &links_[i];
    *to = i % namespaces_.size();
  }
  return earliest;
}

}  // namespace meshnet::delay
