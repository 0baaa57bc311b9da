// SeamReceiver: what one end of a seam has accepted: order, digest, acknowledgement, the credit that it granted.
// Threads: one at a time; the seam's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "seam_digest.h"
#include "status.h"

namespace meshnet {

class SeamReceiver {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SeamReceiver(uint64_t window_bytes) : window_(window_bytes), granted_(window_bytes) {}

  uint64_t next_seq() const { return next_seq_; }
  uint64_t n_accepted() const { return next_seq_ - 1; }
  std::string digest() const { return digest_.Value(); }

  // A sequenced frame. *fresh is false for one that was accepted before: it is acknowledged again and goes no further.
  // kSeqGap, kCreditExceeded.
  Status Accept(uint64_t seq, std::string_view raw, uint64_t prefill_bytes, bool * fresh);
  // Any frame that needs no credit. kRateExceeded.
  Status CountExempt(Clock::time_point now);

  bool ack_due() const { return ack_due_; }
  // The value for a frame that leaves now.
  uint64_t TakeAck();

  // Bytes to grant now, 0 for none yet: grants travel by half windows.
  uint64_t Consumed(uint64_t bytes);
  // The same without a grant: there is no stream to carry it.
  void Keep(uint64_t bytes);
  // What the other end may still send, everything consumed included, for a new stream's Open or Opened.
  uint64_t TakeGrant();

 private:
  uint64_t TakeConsumed();

  const uint64_t window_;
  uint64_t granted_;       // that much more may come
  uint64_t consumed_ = 0;  // not granted again yet
  uint64_t next_seq_ = 1;
  RollingDigest digest_;
  bool ack_due_ = false;
  uint32_t unacked_frames_ = 0;
  uint64_t unacked_bytes_ = 0;
  Clock::time_point second_start_{};
  uint32_t in_second_ = 0;
};

}  // namespace meshnet
