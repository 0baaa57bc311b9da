// Link: one direction between two namespaces: a transmitter with a rate and a bounded queue, then a wire with a delay.
// Threads: not safe; owned by the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>

namespace meshnet::delay {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr uint64_t kDefaultQueueBytes = 1 << 20;
constexpr int64_t kMaxDelayUs = 10'000'000;
constexpr uint64_t kMinRateBps = 8'000;  // slower ones would hold a single packet for more than a second
constexpr uint64_t kMaxRateBps = 1'000'000'000'000;
constexpr uint64_t kMaxQueueBytes = 1 << 28;

struct LinkSettings {
  int64_t delay_us = 0;
  uint64_t rate_bps = 0;  // bits of IP packets per second; 0: no limit, and so no queue
  uint64_t queue_bytes = kDefaultQueueBytes;
};

struct LinkCounters {
  uint64_t packets = 0, bytes = 0, tcp_payload_bytes = 0;  // handed to the receiving namespace
  uint64_t dropped_packets = 0, dropped_bytes = 0;         // the queue was full
  uint64_t refused_packets = 0;                            // the receiving namespace's device took it not
  uint64_t queue_peak_bytes = 0;
};

class Link {
 public:
  struct Held {
    int64_t departure_ns;
    uint32_t tcp_payload_bytes;
    std::string packet;
  };

  // Packets that are under way already keep the time at which they leave, so none overtakes another.
  void Set(const LinkSettings & settings) { settings_ = settings; }
  const LinkSettings & settings() const { return settings_; }

  // False: dropped and counted, for want of room in the queue.
  bool Offer(int64_t now_ns, const char * data, size_t n, uint32_t tcp_payload_bytes);
  // A packet for which the whole line has no room.
  void Drop(size_t n);

  int64_t next_departure_ns() const { return held_.empty() ? kNever : held_.front().departure_ns; }
  // REQUIRES: next_departure_ns() is not kNever. `delivered`: whether the receiving device took it.
  const Held & front() const { return held_.front(); }
  void Pop(bool delivered);

  const LinkCounters & counters() const { return counters_; }
  void ResetCounters() { counters_ = {}; }

 private:
  LinkSettings settings_;
  LinkCounters counters_;
  std::deque<Held> held_;
  int64_t transmitter_free_ns_ = 0;
  int64_t last_departure_ns_ = 0;
};

}  // namespace meshnet::delay
