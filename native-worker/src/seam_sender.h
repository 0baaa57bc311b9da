// SeamSender: what one end of a seam has sent and may still have to send again; the credit that the other end granted.
// Threads: one at a time; the seam's lock.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "seam_digest.h"
#include "status.h"

namespace meshnet {

class SeamSender {
 public:
  uint64_t next_seq() const { return next_seq_; }
  uint64_t n_sent() const { return next_seq_ - 1; }
  std::string digest() const { return digest_.Value(); }

  // A sequenced frame that carries next_seq(): first its bytes, for the digest, then the packet, kept until it is
  // acknowledged. `prefill_bytes` is what it takes of the credit reserved before. kRateExceeded: the other end
  // acknowledges too little.
  void Count(std::string_view raw) { digest_.Add(raw); }
  Status Keep(grpc::ByteBuffer packet, uint64_t bytes, uint64_t prefill_bytes);
  // kSeqGap: the frame was never sent.
  Status Acked(uint64_t seq);

  // The packets to send again on a new stream. kResumeLost when one of them is not held any more, kMalformed for 0.
  Status ResendFrom(uint64_t next_seq, std::vector<grpc::ByteBuffer> * packets);

  // Credit of a new stream, as its Open or Opened says it: what the other end will still accept from `next_seq` on.
  void SetCredit(uint64_t bytes);
  // More than kMaxCreditBytes in all is not used.
  void AddCredit(uint64_t bytes);
  // All or nothing.
  bool Reserve(uint64_t bytes);

 private:
  struct Kept {
    uint64_t seq;
    grpc::ByteBuffer packet;
    uint64_t bytes;
    uint64_t prefill_bytes;
  };

  uint64_t next_seq_ = 1;
  RollingDigest digest_;
  std::deque<Kept> kept_;
  uint64_t exempt_bytes_ = 0;   // kept, outside the credit
  uint64_t prefill_bytes_ = 0;  // kept, inside it
  int64_t credit_ = 0;          // may be negative after a reconnection that granted less
  uint64_t reserved_ = 0;       // taken from the credit, not sent yet
};

}  // namespace meshnet
