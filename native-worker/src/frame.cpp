#include "frame.h"

#include <google/protobuf/io/coded_stream.h>

#include <cmath>
#include <string>

#include "bounds.h"
#include "frame_scan.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;

// One number for each code on both sides: spot checks at the ends of every run of consecutive values.
static_assert(static_cast<int>(Code::kOk) == pb::ERROR_CODE_UNSPECIFIED);
static_assert(static_cast<int>(Code::kInternal) == pb::ERROR_CODE_INTERNAL);
static_assert(static_cast<int>(Code::kCancelled) == pb::ERROR_CODE_CANCELLED);
static_assert(static_cast<int>(Code::kDeadlineExceeded) == pb::ERROR_CODE_DEADLINE_EXCEEDED);
static_assert(static_cast<int>(Code::kResourceExhausted) == pb::ERROR_CODE_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(Code::kVersionUnsupported) == pb::ERROR_CODE_VERSION_UNSUPPORTED);
static_assert(static_cast<int>(Code::kMalformed) == pb::ERROR_CODE_MALFORMED);
static_assert(static_cast<int>(Code::kFrameTooLarge) == pb::ERROR_CODE_FRAME_TOO_LARGE);
static_assert(static_cast<int>(Code::kLimitExceeded) == pb::ERROR_CODE_LIMIT_EXCEEDED);
static_assert(static_cast<int>(Code::kLaneNotOpen) == pb::ERROR_CODE_LANE_NOT_OPEN);
static_assert(static_cast<int>(Code::kLaneExists) == pb::ERROR_CODE_LANE_EXISTS);
static_assert(static_cast<int>(Code::kEpochStale) == pb::ERROR_CODE_EPOCH_STALE);
static_assert(static_cast<int>(Code::kTicketInvalid) == pb::ERROR_CODE_TICKET_INVALID);
static_assert(static_cast<int>(Code::kPeerMismatch) == pb::ERROR_CODE_PEER_MISMATCH);
static_assert(static_cast<int>(Code::kAttemptStale) == pb::ERROR_CODE_ATTEMPT_STALE);
static_assert(static_cast<int>(Code::kModelMismatch) == pb::ERROR_CODE_MODEL_MISMATCH);
static_assert(static_cast<int>(Code::kRangeMismatch) == pb::ERROR_CODE_RANGE_MISMATCH);
static_assert(static_cast<int>(Code::kSchemaMismatch) == pb::ERROR_CODE_SCHEMA_MISMATCH);
static_assert(static_cast<int>(Code::kSeqGap) == pb::ERROR_CODE_SEQ_GAP);
static_assert(static_cast<int>(Code::kBranchStale) == pb::ERROR_CODE_BRANCH_STALE);
static_assert(static_cast<int>(Code::kPositionInvalid) == pb::ERROR_CODE_POSITION_INVALID);
static_assert(static_cast<int>(Code::kShapeInvalid) == pb::ERROR_CODE_SHAPE_INVALID);
static_assert(static_cast<int>(Code::kDtypeInvalid) == pb::ERROR_CODE_DTYPE_INVALID);
static_assert(static_cast<int>(Code::kSizeMismatch) == pb::ERROR_CODE_SIZE_MISMATCH);
static_assert(static_cast<int>(Code::kValueInvalid) == pb::ERROR_CODE_VALUE_INVALID);
static_assert(static_cast<int>(Code::kTokenInvalid) == pb::ERROR_CODE_TOKEN_INVALID);
static_assert(static_cast<int>(Code::kTurnInvalid) == pb::ERROR_CODE_TURN_INVALID);
static_assert(static_cast<int>(Code::kGrammarInvalid) == pb::ERROR_CODE_GRAMMAR_INVALID);
static_assert(static_cast<int>(Code::kRewindLost) == pb::ERROR_CODE_REWIND_LOST);
static_assert(static_cast<int>(Code::kResumeLost) == pb::ERROR_CODE_RESUME_LOST);
static_assert(static_cast<int>(Code::kContextFull) == pb::ERROR_CODE_CONTEXT_FULL);
static_assert(static_cast<int>(Code::kNoCapacity) == pb::ERROR_CODE_NO_CAPACITY);
static_assert(static_cast<int>(Code::kCreditExceeded) == pb::ERROR_CODE_CREDIT_EXCEEDED);
static_assert(static_cast<int>(Code::kRateExceeded) == pb::ERROR_CODE_RATE_EXCEEDED);
static_assert(static_cast<int>(Code::kStreamEnded) == pb::ERROR_CODE_STREAM_ENDED);
static_assert(static_cast<int>(Code::kSeamTimeout) == pb::ERROR_CODE_SEAM_TIMEOUT);
static_assert(static_cast<int>(Code::kSeamUnreachable) == pb::ERROR_CODE_SEAM_UNREACHABLE);
static_assert(static_cast<int>(Code::kDecodeFailed) == pb::ERROR_CODE_DECODE_FAILED);
static_assert(static_cast<int>(Code::kLeaseExpired) == pb::ERROR_CODE_LEASE_EXPIRED);
static_assert(static_cast<int>(Code::kDraining) == pb::ERROR_CODE_DRAINING);
static_assert(static_cast<int>(Code::kNotServing) == pb::ERROR_CODE_NOT_SERVING);
static_assert(static_cast<int>(Code::kNotCertified) == pb::ERROR_CODE_NOT_CERTIFIED);
static_assert(static_cast<int>(Code::kModelCorrupt) == pb::ERROR_CODE_MODEL_CORRUPT);
static_assert(static_cast<int>(Code::kModelUnknown) == pb::ERROR_CODE_MODEL_UNKNOWN);
static_assert(static_cast<int>(Code::kRangeInvalid) == pb::ERROR_CODE_RANGE_INVALID);
static_assert(static_cast<int>(Code::kAdvertisementInvalid) == pb::ERROR_CODE_ADVERTISEMENT_INVALID);
static_assert(static_cast<int>(Code::kDigestMismatch) == pb::ERROR_CODE_DIGEST_MISMATCH);
static_assert(static_cast<int>(Code::kNoRoute) == pb::ERROR_CODE_NO_ROUTE);
static_assert(static_cast<int>(Code::kWorkerLost) == pb::ERROR_CODE_WORKER_LOST);
static_assert(static_cast<int>(Code::kRoleInvalid) == pb::ERROR_CODE_ROLE_INVALID);

std::string Count(const char * what, uint64_t has, uint64_t limit) {
  return std::string(what) + ": " + std::to_string(has) + ", limit " + std::to_string(limit);
}

Status CheckTensor(const pb::Tensor & tensor, pb::DType agreed) {
  if (tensor.name().size() > kMaxTensorNameBytes) return {Code::kLimitExceeded, "a tensor's name is too long"};
  if (tensor.shape_size() == 0 || tensor.shape_size() > static_cast<int>(kMaxRank)) {
    return {Code::kShapeInvalid, Count("tensor rank", tensor.shape_size(), kMaxRank)};
  }
  uint64_t rows = 1;
  for (int i = 0; i < tensor.shape_size(); ++i) {
    if (tensor.shape(i) == 0) return {Code::kShapeInvalid, "a tensor's dimension is 0"};
    if (i + 1 < tensor.shape_size() && __builtin_mul_overflow(rows, tensor.shape(i), &rows)) {
      return {Code::kShapeInvalid, "a tensor's shape overflows"};
    }
  }
  if (tensor.dtype() != pb::DTYPE_F32 && tensor.dtype() != pb::DTYPE_F16 && tensor.dtype() != pb::DTYPE_Q8_0) {
    return {Code::kDtypeInvalid, "unknown dtype " + std::to_string(tensor.dtype())};
  }
  if (tensor.dtype() != agreed) return {Code::kDtypeInvalid, "the tensor has another dtype than Open said"};
  uint64_t bytes = 0;
  if (!TensorBytes(tensor.dtype(), rows, tensor.shape(tensor.shape_size() - 1), &bytes)) {
    return {Code::kShapeInvalid, "a tensor's shape does not fit its dtype"};
  }
  if (bytes != tensor.data().size()) {
    return {Code::kSizeMismatch, "shape and dtype give " + std::to_string(bytes) + " bytes, data has " +
                                     std::to_string(tensor.data().size())};
  }
  return {};
}

Status CheckLogprobs(const pb::TokenLogprobs & entry) {
  if (entry.top_ids_size() > kMaxLogprobs || entry.top_ids_size() != entry.top_logprobs_size()) {
    return {Code::kLimitExceeded, Count("logprob alternatives", entry.top_ids_size(), kMaxLogprobs)};
  }
  if (std::isnan(entry.logprob())) return {Code::kValueInvalid, "a logprob is not a number"};
  for (float value : entry.top_logprobs()) {
    if (std::isnan(value)) return {Code::kValueInvalid, "a logprob is not a number"};
  }
  return {};
}

Status CheckRunFields(const Frame & frame) {
  if (frame.phase() < pb::PHASE_UNSPECIFIED || frame.phase() > pb::PHASE_LOOP) {
    return {Code::kMalformed, "unknown phase " + std::to_string(frame.phase())};
  }
  if (frame.finish() < pb::FINISH_UNSPECIFIED || frame.finish() > pb::FINISH_CANCELLED) {
    return {Code::kMalformed, "unknown finish " + std::to_string(frame.finish())};
  }
  if (frame.n_tokens() > kMaxFrameTokens) {
    return {Code::kLimitExceeded, Count("positions of a frame", frame.n_tokens(), kMaxFrameTokens)};
  }
  if (static_cast<uint32_t>(frame.tokens_size()) > kMaxFrameTokens) {
    return {Code::kLimitExceeded, Count("tokens of a frame", frame.tokens_size(), kMaxFrameTokens)};
  }
  if (frame.pos() > INT32_MAX) return {Code::kPositionInvalid, "a position does not fit 31 bits"};
  const uint64_t payload = PayloadBytes(frame);
  if (payload > kMaxPayloadBytes) return {Code::kFrameTooLarge, Count("frame payload", payload, kMaxPayloadBytes)};
  for (const auto & entry : frame.logprobs()) {
    if (Status s = CheckLogprobs(entry); !s.ok()) return s;
  }
  return {};
}

// A NaN is within nothing.
Status CheckSampling(const pb::Sampling & s) {
  const auto within = [](float value, float low, float high) { return value >= low && value <= high; };
  if (!within(s.temperature(), 0, 100) || !within(s.top_p(), 0, 1) || !within(s.min_p(), 0, 1) ||
      !within(s.presence_penalty(), -2, 2) || !within(s.frequency_penalty(), -2, 2)) {
    return {Code::kTurnInvalid, "a sampling parameter is out of its range"};
  }
  if (s.top_k() > INT32_MAX) return {Code::kTurnInvalid, "top_k does not fit 31 bits"};
  for (const auto & bias : s.logit_bias()) {
    if (!std::isfinite(bias.bias()) || bias.token() < 0) return {Code::kTurnInvalid, "a logit bias is not valid"};
  }
  return {};
}

Status CheckMessages(const Frame & frame) {
  if (frame.has_turn()) {
    const auto & turn = frame.turn();
    if (turn.turn() == 0 || turn.n_tokens() == 0) return {Code::kTurnInvalid, "a turn has no number or no tokens"};
    if (turn.logprobs() < -1 || turn.logprobs() > kMaxLogprobs) {
      return {Code::kTurnInvalid,
              "logprobs: " + std::to_string(turn.logprobs()) + ", limit " + std::to_string(kMaxLogprobs)};
    }
    if (turn.grammar().size() > kMaxGrammarBytes) {
      return {Code::kLimitExceeded, Count("grammar bytes", turn.grammar().size(), kMaxGrammarBytes)};
    }
    return CheckSampling(turn.sampling());
  }
  if (frame.has_turn_tokens()) {
    const auto n_ids = static_cast<size_t>(frame.turn_tokens().ids_size());
    if (n_ids > kMaxTurnTokens) return {Code::kLimitExceeded, Count("ids of a piece", n_ids, kMaxTurnTokens)};
    if (n_ids == 0) return {Code::kTurnInvalid, "a piece has no ids"};
  }
  if (frame.has_error()) {
    const auto & error = frame.error();
    if (error.message().size() > kMaxErrorMessageBytes) return {Code::kLimitExceeded, "an error's message is too long"};
    for (const auto & detail : error.details()) {
      if (detail.key().size() > kMaxDetailKeyBytes || detail.value().size() > kMaxDetailValueBytes) {
        return {Code::kLimitExceeded, "an error's detail is too long"};
      }
    }
  }
  if (frame.has_close() && frame.close().digest().size() != kDigestBytes) {
    return {Code::kMalformed, "a Close carries no digest"};
  }
  return {};
}

Status CheckTokens(const Frame & frame, uint32_t n_vocab) {
  for (int32_t token : frame.tokens()) {
    if (token < 0 || static_cast<uint32_t>(token) >= n_vocab) {
      return {Code::kTokenInvalid, "token " + std::to_string(token) + " is outside the vocabulary"};
    }
  }
  return {};
}

Status CheckActivation(const Frame & frame, const FrameRules & rules) {
  if (!rules.activations) return {Code::kRoleInvalid, "this direction carries no activations"};
  if (frame.n_tokens() == 0) return {Code::kPositionInvalid, "a run has no positions"};
  if (uint64_t{frame.pos()} + frame.n_tokens() > rules.max_positions) {
    return {Code::kPositionInvalid, "positions " + std::to_string(frame.pos()) + "+" +
                                        std::to_string(frame.n_tokens()) + " pass the session's " +
                                        std::to_string(rules.max_positions)};
  }
  if (frame.tokens_size() != 0 && static_cast<uint32_t>(frame.tokens_size()) != frame.n_tokens()) {
    return {Code::kMalformed, "tokens and positions differ in number"};
  }
  if (frame.finish() != pb::FINISH_UNSPECIFIED || frame.logprobs_size() != 0) {
    return {Code::kMalformed, "an activation run carries no results"};
  }
  const auto dtype = frame.phase() == pb::PHASE_PREFILL ? rules.prefill_dtype : rules.decode_dtype;
  for (const auto & tensor : frame.tensors()) {
    if (Status s = CheckTensor(tensor, dtype); !s.ok()) return s;
  }
  if (frame.tensors_size() != 1 || frame.tensors(0).name() != kBoundaryTensor) {
    return {Code::kShapeInvalid, "the bundle is not the one of Open"};
  }
  const auto & tensor = frame.tensors(0);
  if (tensor.shape_size() != 2 || tensor.shape(0) != frame.n_tokens() || tensor.shape(1) != rules.width) {
    return {Code::kShapeInvalid, "residual is not [n_tokens, " + std::to_string(rules.width) + "]"};
  }
  return CheckTokens(frame, rules.n_vocab);
}

Status CheckLoop(const Frame & frame, const FrameRules & rules) {
  if (!rules.loop) return {Code::kRoleInvalid, "this direction carries no sampled tokens"};
  if (frame.tensors_size() != 0) return {Code::kShapeInvalid, "a loop frame carries no tensors"};
  if (frame.n_tokens() == 0 && frame.finish() == pb::FINISH_UNSPECIFIED) {
    return {Code::kPositionInvalid, "a loop frame carries nothing"};
  }
  if (static_cast<uint32_t>(frame.tokens_size()) != frame.n_tokens() ||
      (frame.logprobs_size() != 0 && frame.logprobs_size() != frame.tokens_size())) {
    return {Code::kMalformed, "tokens, logprobs and positions differ in number"};
  }
  // The last token of a full context is sampled, but takes no position.
  if (uint64_t{frame.pos()} + frame.n_tokens() > uint64_t{rules.max_positions} + 1) {
    return {Code::kPositionInvalid,
            "position " + std::to_string(frame.pos()) + " passes the session's " + std::to_string(rules.max_positions)};
  }
  return CheckTokens(frame, rules.n_vocab);
}

}  // namespace

bool TensorBytes(pb::DType dtype, uint64_t rows, uint64_t row_elements, uint64_t * out) {
  constexpr uint64_t kBlock = 32, kBlockBytes = 34;  // q8_0
  uint64_t row_bytes = 0;
  switch (dtype) {
    case pb::DTYPE_F32:
      if (__builtin_mul_overflow(row_elements, uint64_t{4}, &row_bytes)) return false;
      break;
    case pb::DTYPE_F16:
      if (__builtin_mul_overflow(row_elements, uint64_t{2}, &row_bytes)) return false;
      break;
    case pb::DTYPE_Q8_0:
      if (row_elements % kBlock != 0 || __builtin_mul_overflow(row_elements / kBlock, kBlockBytes, &row_bytes)) {
        return false;
      }
      break;
    default:
      return false;
  }
  return !__builtin_mul_overflow(rows, row_bytes, out);
}

uint64_t PayloadBytes(const Frame & frame) {
  uint64_t bytes = 0;
  for (const auto & tensor : frame.tensors()) bytes += tensor.data().size();
  return bytes;
}

Status KindOf(const Frame & frame, FrameKind * out) {
  int n_kinds = 0;
  *out = FrameKind::kAck;
  const auto is = [&](bool present, FrameKind kind) {
    if (!present) return;
    ++n_kinds;
    *out = kind;
  };
  is(frame.phase() != pb::PHASE_UNSPECIFIED, FrameKind::kRun);
  is(frame.has_open(), FrameKind::kOpen);
  is(frame.has_opened(), FrameKind::kOpened);
  is(frame.has_turn(), FrameKind::kTurn);
  is(frame.has_turn_tokens(), FrameKind::kTurnTokens);
  is(frame.has_credit(), FrameKind::kCredit);
  is(frame.has_cancel(), FrameKind::kCancel);
  is(frame.has_error(), FrameKind::kError);
  is(frame.has_close(), FrameKind::kClose);
  if (n_kinds > 1) return {Code::kMalformed, "a frame is of two kinds"};
  const bool run_fields = frame.n_tokens() != 0 || frame.tokens_size() != 0 || frame.tensors_size() != 0 ||
                          frame.logprobs_size() != 0 || frame.finish() != pb::FINISH_UNSPECIFIED;
  if (run_fields && *out != FrameKind::kRun) return {Code::kMalformed, "a frame without a phase carries a run"};
  return {};
}

bool IsSequenced(FrameKind kind) {
  switch (kind) {
    case FrameKind::kRun:
    case FrameKind::kTurn:
    case FrameKind::kTurnTokens:
    case FrameKind::kCancel:
    case FrameKind::kClose:
      return true;
    default:
      return false;
  }
}

Status ParsePacket(std::string_view bytes, std::vector<ParsedFrame> * out) {
  out->clear();
  if (bytes.size() > kMaxPacketBytes) return {Code::kFrameTooLarge, Count("packet", bytes.size(), kMaxPacketBytes)};
  std::vector<std::string_view> raws;
  if (Status s = SplitPacket(bytes, &raws); !s.ok()) return s;
  std::vector<ParsedFrame> frames(raws.size());
  for (size_t i = 0; i < raws.size(); ++i) {
    Frame & frame = frames[i].frame;
    frames[i].raw = raws[i];
    if (Status s = ScanFrame(raws[i]); !s.ok()) return s;
    if (!frame.ParseFromArray(raws[i].data(), static_cast<int>(raws[i].size()))) {
      return {Code::kMalformed, "bytes are not a frame"};
    }
    // An Error may answer bytes that named no lane.
    if (frame.lane().session().size() != kSessionBytes && !frame.has_error()) {
      return {Code::kMalformed, "a frame names no lane"};
    }
    FrameKind kind;
    if (Status s = KindOf(frame, &kind); !s.ok()) return s;
    if (IsSequenced(kind) != (frame.seq() != 0)) return {Code::kMalformed, "seq does not fit the kind of frame"};
    if (Status s = CheckRunFields(frame); !s.ok()) return s;
    if (Status s = CheckMessages(frame); !s.ok()) return s;
  }
  *out = std::move(frames);
  return {};
}

Status CheckFrame(const Frame & frame, const FrameRules & rules) {
  const auto & lane = frame.lane();
  if (lane.session() != rules.lane.session || lane.epoch() != rules.lane.epoch || lane.stage() != rules.lane.stage) {
    return {Code::kLaneNotOpen, "the frame names another lane"};
  }
  FrameKind kind;
  if (Status s = KindOf(frame, &kind); !s.ok()) return s;
  switch (kind) {
    case FrameKind::kRun:
      return frame.phase() == pb::PHASE_LOOP ? CheckLoop(frame, rules) : CheckActivation(frame, rules);
    case FrameKind::kTurn:
      if (!rules.turns) break;
      if (uint64_t{frame.turn().start()} + frame.turn().n_tokens() > rules.max_positions) {
        return {Code::kContextFull, "the turn needs " +
                                        std::to_string(uint64_t{frame.turn().start()} + frame.turn().n_tokens()) +
                                        " positions, the session has " + std::to_string(rules.max_positions)};
      }
      for (const auto & bias : frame.turn().sampling().logit_bias()) {
        if (static_cast<uint32_t>(bias.token()) >= rules.n_vocab)
          return {Code::kTokenInvalid, "a biased token is unknown"};
      }
      return {};
    case FrameKind::kTurnTokens:
      if (!rules.turns) break;
      for (int32_t id : frame.turn_tokens().ids()) {
        if (id < 0 || static_cast<uint32_t>(id) >= rules.n_vocab) {
          return {Code::kTokenInvalid, "token " + std::to_string(id) + " is outside the vocabulary"};
        }
      }
      return {};
    case FrameKind::kCancel:
      if (!rules.turns) break;
      return {};
    case FrameKind::kOpen:
    case FrameKind::kOpened:
      return {Code::kMalformed, "the stream is open already"};
    default:
      return {};
  }
  return {Code::kRoleInvalid, "turns come from the gateway's side only"};
}

std::string EncodePacket(const Frame & frame, size_t * raw_offset) {
  using google::protobuf::io::CodedOutputStream;
  const size_t raw = frame.ByteSizeLong();
  if (raw > kMaxPacketBytes) return {};
  const size_t offset = 1 + CodedOutputStream::VarintSize32(static_cast<uint32_t>(raw));
  if (offset + raw > kMaxPacketBytes) return {};
  std::string packet(offset + raw, '\0');
  auto * at = reinterpret_cast<uint8_t *>(packet.data());
  *at++ = 0x0a;  // Packet.frames
  at = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(raw), at);
  frame.SerializeWithCachedSizesToArray(at);
  *raw_offset = offset;
  return packet;
}

}  // namespace meshnet
