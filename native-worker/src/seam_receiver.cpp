#include "seam_receiver.h"

#include <algorithm>

#include "bounds.h"

namespace meshnet {

Status SeamReceiver::Accept(uint64_t seq, std::string_view raw, uint64_t prefill_bytes, bool * fresh) {
  *fresh = false;
  if (seq > next_seq_) {
    return {Code::kSeqGap,
            "frame " + std::to_string(seq) + " came where " + std::to_string(next_seq_) + " was expected"};
  }
  if (seq < next_seq_) {
    ack_due_ = true;
    return {};
  }
  if (prefill_bytes > granted_) {
    return {Code::kCreditExceeded,
            "prefill of " + std::to_string(prefill_bytes) + " bytes, credit " + std::to_string(granted_)};
  }
  granted_ -= prefill_bytes;
  digest_.Add(raw);
  ++next_seq_;
  unacked_bytes_ += raw.size();
  if (++unacked_frames_ >= kAckEveryFrames || unacked_bytes_ >= kAckEveryBytes) ack_due_ = true;
  *fresh = true;
  return {};
}

Status SeamReceiver::CountExempt(Clock::time_point now) {
  if (now - second_start_ >= std::chrono::seconds(1)) {
    second_start_ = now;
    in_second_ = 0;
  }
  if (++in_second_ > kMaxExemptFramesPerSecond) {
    return {Code::kRateExceeded,
            "more than " + std::to_string(kMaxExemptFramesPerSecond) + " frames without credit in a second"};
  }
  return {};
}

uint64_t SeamReceiver::TakeAck() {
  ack_due_ = false;
  unacked_frames_ = 0;
  unacked_bytes_ = 0;
  return n_accepted();
}

void SeamReceiver::Keep(uint64_t bytes) {
  // What was never sent cannot be consumed; a wrong caller must not open the window wider than it was.
  consumed_ = std::min(consumed_ + bytes, window_ - std::min(window_, granted_));
}

uint64_t SeamReceiver::Consumed(uint64_t bytes) {
  Keep(bytes);
  if (consumed_ < std::max<uint64_t>(window_ / 2, 1)) return 0;
  return TakeConsumed();
}

uint64_t SeamReceiver::TakeConsumed() {
  const uint64_t bytes = consumed_;
  consumed_ = 0;
  granted_ += bytes;
  return bytes;
}

uint64_t SeamReceiver::TakeGrant() {
  TakeConsumed();
  return granted_;
}

}  // namespace meshnet
