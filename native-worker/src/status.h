// Status: the result of every fallible call, with the same codes as proto/seam.proto's ErrorCode.
// Threads: a value type; no shared state.
#pragma once

#include <string>
#include <utility>

namespace meshnet {

// Numbers equal meshnet.seam.v1.ErrorCode (a static_assert in frame.cpp keeps them so). SPEC.md says when each one
// happens and what the receiver should do.
enum class Code : int {
  kOk = 0,
  kInternal = 1,
  kCancelled = 2,
  kDeadlineExceeded = 3,
  kResourceExhausted = 4,
  kVersionUnsupported = 5,
  kMalformed = 6,
  kFrameTooLarge = 7,
  kLimitExceeded = 8,
  kLaneNotOpen = 9,
  kLaneExists = 10,
  kEpochStale = 11,
  kTicketInvalid = 12,
  kPeerMismatch = 13,
  kAttemptStale = 14,
  kModelMismatch = 15,
  kRangeMismatch = 16,
  kSchemaMismatch = 17,
  kSeqGap = 18,
  kBranchStale = 19,
  kPositionInvalid = 20,
  kShapeInvalid = 21,
  kDtypeInvalid = 22,
  kSizeMismatch = 23,
  kValueInvalid = 24,
  kTokenInvalid = 25,
  kTurnInvalid = 26,
  kGrammarInvalid = 27,
  kRewindLost = 28,
  kResumeLost = 29,
  kContextFull = 30,
  kNoCapacity = 31,
  kCreditExceeded = 32,
  kRateExceeded = 33,
  kStreamEnded = 34,
  kSeamTimeout = 35,
  kSeamUnreachable = 36,
  kDecodeFailed = 37,
  kLeaseExpired = 38,
  kDraining = 39,
  kNotServing = 40,
  kNotCertified = 41,
  kModelCorrupt = 42,
  kModelUnknown = 43,
  kRangeInvalid = 44,
  kAdvertisementInvalid = 45,
  kDigestMismatch = 46,
  kNoRoute = 47,
  kWorkerLost = 48,
  kRoleInvalid = 49,
};

// A code and a sentence for people. Tests compare the code only.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string & message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace meshnet
