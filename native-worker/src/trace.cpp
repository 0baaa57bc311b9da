#include "trace.h"

#include <openssl/sha.h>

#include <utility>

namespace meshnet {

std::string Sha256(std::span<const float> values) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char *>(values.data()), values.size_bytes(),
         reinterpret_cast<unsigned char *>(digest.data()));
  return digest;
}

Status Sequences::Truncate(int32_t seq, int32_t keep) {
  if (keep < shard_->MinRewind(seq))
    return {Code::kRewindLost, "the state cannot go back to position " + std::to_string(keep)};
  wanted_[seq] = keep;
  return {};
}

Status Sequences::Apply(int32_t seq) {
  const auto wanted = wanted_.extract(seq);
  if (wanted.empty()) return {};
  const int32_t keep = wanted.mapped();
  if (keep == 0) {
    shard_->Clear(seq);
  } else if (Status s = shard_->Truncate(seq, keep); !s.ok()) {
    return s;
  }
  Record(seq, keep);
  return {};
}

void Sequences::Clear(int32_t seq) {
  wanted_.erase(seq);
  shard_->Clear(seq);
  Record(seq, 0);
}

void Sequences::Record(int32_t seq, int32_t keep) {
  if (trace_) operations_.push_back({seq, keep});
}

std::vector<TraceOp> Sequences::TakeOperations() { return std::exchange(operations_, {}); }

}  // namespace meshnet
