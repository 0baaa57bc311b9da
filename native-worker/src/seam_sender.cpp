#include "seam_sender.h"

#include <algorithm>

#include "bounds.h"

namespace meshnet {

Status SeamSender::Keep(grpc::ByteBuffer packet, uint64_t bytes, uint64_t prefill_bytes) {
  reserved_ -= std::min(reserved_, prefill_bytes);
  kept_.push_back({next_seq_++, std::move(packet), bytes, prefill_bytes});
  prefill_bytes_ += prefill_bytes;
  if (prefill_bytes == 0) exempt_bytes_ += bytes;
  if (kept_.size() > kMaxUnackedFrames || exempt_bytes_ > kMaxUnackedExemptBytes) {
    return {Code::kRateExceeded,
            "the other end acknowledges nothing: " + std::to_string(kept_.size()) + " frames kept"};
  }
  return {};
}

Status SeamSender::Acked(uint64_t seq) {
  if (seq >= next_seq_) return {Code::kSeqGap, "frame " + std::to_string(seq) + " is acknowledged but was never sent"};
  while (!kept_.empty() && kept_.front().seq <= seq) {
    const Kept & kept = kept_.front();
    prefill_bytes_ -= kept.prefill_bytes;
    if (kept.prefill_bytes == 0) exempt_bytes_ -= kept.bytes;
    kept_.pop_front();
  }
  return {};
}

Status SeamSender::ResendFrom(uint64_t next_seq, std::vector<grpc::ByteBuffer> * packets) {
  packets->clear();
  if (next_seq == 0) return {Code::kMalformed, "next_seq is 0"};
  const uint64_t first_held = kept_.empty() ? next_seq_ : kept_.front().seq;
  if (next_seq < first_held || next_seq > next_seq_) {
    return {Code::kResumeLost, "frames from " + std::to_string(next_seq) + " on are wanted, held are " +
                                   std::to_string(first_held) + " to " + std::to_string(next_seq_ - 1)};
  }
  if (next_seq > 1) {
    if (Status s = Acked(next_seq - 1); !s.ok()) return s;
  }
  for (const Kept & kept : kept_) packets->push_back(kept.packet);
  return {};
}

void SeamSender::SetCredit(uint64_t bytes) {
  credit_ = static_cast<int64_t>(std::min(bytes, kMaxCreditBytes)) - static_cast<int64_t>(prefill_bytes_ + reserved_);
}

void SeamSender::AddCredit(uint64_t bytes) {
  const auto limit = static_cast<int64_t>(kMaxCreditBytes);
  credit_ = std::min(limit, credit_ + static_cast<int64_t>(std::min(bytes, kMaxCreditBytes)));
}

bool SeamSender::Reserve(uint64_t bytes) {
  if (bytes > kMaxCreditBytes || credit_ < static_cast<int64_t>(bytes)) return false;
  credit_ -= static_cast<int64_t>(bytes);
  reserved_ += bytes;
  return true;
}

}  // namespace meshnet
