#include "seam_open.h"

#include <algorithm>

#include "bounds.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;
namespace wk = meshnet::worker::v1;

bool CarriesActivations(wk::SeamRole end) { return end == wk::SEAM_ROLE_TO_NEXT || end == wk::SEAM_ROLE_TO_PREVIOUS; }

std::string Range(uint32_t first, uint32_t last) { return std::to_string(first) + "-" + std::to_string(last); }

pb::Role DiallerRole(const SeamTerms & terms) {
  switch (terms.end) {
    case wk::SEAM_ROLE_TO_NEXT:
      return pb::ROLE_UPSTREAM;
    case wk::SEAM_ROLE_TO_PREVIOUS:
      return pb::ROLE_DOWNSTREAM;
    case wk::SEAM_ROLE_LOOP:
      return terms.is_tail() ? pb::ROLE_LOOP_TAIL : pb::ROLE_LOOP_HEAD;
    default:
      return pb::ROLE_UNSPECIFIED;
  }
}

void FillLimits(const SeamTerms & terms, pb::Limits * limits) {
  limits->set_max_packet_bytes(kMaxPacketBytes);
  limits->set_max_frame_payload_bytes(kMaxPayloadBytes);
  limits->set_max_chunk_tokens(terms.max_chunk_tokens);
  limits->set_max_positions(terms.positions);
}

Status CheckRange(const SeamTerms & terms, uint32_t first, uint32_t last) {
  const std::string ranges =
      "the other end holds " + Range(first, last) + ", this one " + Range(terms.layer_first, terms.layer_last);
  const Status mismatch{Code::kRangeMismatch, ranges};
  if (terms.end == wk::SEAM_ROLE_ENTRY) return first == 0 && last == 0 ? Status() : mismatch;
  if (first >= last || last > terms.n_layer) return mismatch;
  switch (terms.end) {
    case wk::SEAM_ROLE_TO_PREVIOUS:
      return last == terms.layer_first ? Status() : mismatch;
    case wk::SEAM_ROLE_TO_NEXT:
      return first == terms.layer_last ? Status() : mismatch;
    case wk::SEAM_ROLE_LOOP:
      return (terms.is_head() ? last == terms.n_layer : first == 0) ? Status() : mismatch;
    default:
      return {Code::kRoleInvalid, "the lane has no such end"};
  }
}

Status CheckLimits(const pb::Limits & limits) {
  // Packets as this version makes them must fit. Positions and chunks may be fewer: the lower of two ends holds.
  if (limits.max_packet_bytes() < kMaxPacketBytes || limits.max_frame_payload_bytes() < kMaxPayloadBytes) {
    return {Code::kLimitExceeded, "the other end accepts smaller packets than version 1 sends"};
  }
  return {};
}

Status CheckBoundary(const SeamTerms & terms, const pb::Open & open) {
  const Status mismatch{Code::kSchemaMismatch, "the boundary is not one residual of " + std::to_string(terms.n_embd) +
                                                   " elements with the dtypes of admission"};
  if (!CarriesActivations(terms.end)) {
    return open.boundary_size() == 0 ? Status()
                                     : Status(Code::kSchemaMismatch, "this seam carries tokens, not activations");
  }
  if (open.boundary_size() != 1) return mismatch;
  const auto & tensor = open.boundary(0);
  return tensor.name() == kBoundaryTensor && tensor.width() == terms.n_embd &&
                 tensor.prefill_dtype() == terms.prefill_dtype && tensor.decode_dtype() == terms.decode_dtype
             ? Status()
             : mismatch;
}

}  // namespace

Status CheckTerms(const SeamTerms & terms) {
  const bool several = terms.n_stages > 1;
  bool fits = false;
  switch (terms.end) {
    case wk::SEAM_ROLE_ENTRY:
      fits = terms.is_head();
      break;
    case wk::SEAM_ROLE_TO_NEXT:
      fits = several && !terms.is_tail();
      break;
    case wk::SEAM_ROLE_TO_PREVIOUS:
      fits = several && !terms.is_head();
      break;
    case wk::SEAM_ROLE_LOOP:
      fits = terms.n_stages > 2 && (terms.is_head() || terms.is_tail());
      break;
    default:
      break;
  }
  return fits ? Status()
              : Status(Code::kRoleInvalid, "stage " + std::to_string(terms.lane.stage) + " of " +
                                               std::to_string(terms.n_stages) + " has no such seam");
}

uint32_t PeerStage(const SeamTerms & terms) {
  switch (terms.end) {
    case wk::SEAM_ROLE_TO_NEXT:
      return terms.lane.stage + 1;
    case wk::SEAM_ROLE_TO_PREVIOUS:
      return terms.lane.stage - 1;
    case wk::SEAM_ROLE_LOOP:
      return terms.is_head() ? terms.n_stages - 1 : 0;
    default:
      return terms.lane.stage;
  }
}

Port PortOf(const SeamTerms & terms) {
  switch (terms.end) {
    case wk::SEAM_ROLE_TO_NEXT:
      return Port::kDown;
    case wk::SEAM_ROLE_LOOP:
      return Port::kLoop;
    default:
      return Port::kUp;
  }
}

bool CarriesLoop(const SeamTerms & terms) {
  return terms.n_stages == 2 && terms.is_tail() && terms.end == wk::SEAM_ROLE_TO_PREVIOUS;
}

FrameRules IncomingRules(const SeamTerms & terms) {
  FrameRules rules;
  rules.lane = terms.lane;
  rules.turns = terms.end == wk::SEAM_ROLE_ENTRY || terms.end == wk::SEAM_ROLE_TO_PREVIOUS;
  rules.activations = terms.end == wk::SEAM_ROLE_TO_PREVIOUS;
  rules.loop = terms.is_head() &&
               ((terms.end == wk::SEAM_ROLE_TO_NEXT && terms.n_stages == 2) || terms.end == wk::SEAM_ROLE_LOOP);
  rules.width = terms.n_embd;
  rules.prefill_dtype = terms.prefill_dtype;
  rules.decode_dtype = terms.decode_dtype;
  rules.max_positions = std::max(terms.positions, terms.max_positions);
  rules.n_vocab = terms.n_vocab;
  return rules;
}

wk::SeamRole EndFor(pb::Role dialler) {
  switch (dialler) {
    case pb::ROLE_ENTRY:
      return wk::SEAM_ROLE_ENTRY;
    case pb::ROLE_UPSTREAM:
      return wk::SEAM_ROLE_TO_PREVIOUS;
    case pb::ROLE_DOWNSTREAM:
      return wk::SEAM_ROLE_TO_NEXT;
    case pb::ROLE_LOOP_TAIL:
    case pb::ROLE_LOOP_HEAD:
      return wk::SEAM_ROLE_LOOP;
    default:
      return wk::SEAM_ROLE_UNSPECIFIED;
  }
}

pb::Open MakeOpen(const SeamTerms & terms, uint32_t attempt, uint64_t next_seq, uint64_t credit_bytes) {
  pb::Open open;
  open.set_version(kProtocolVersion);
  open.set_min_version(kProtocolVersion);
  open.set_role(DiallerRole(terms));
  open.set_attempt(attempt);
  open.set_model_digest(terms.model_digest);
  open.set_layer_first(terms.layer_first);
  open.set_layer_last(terms.layer_last);
  if (CarriesActivations(terms.end)) {
    auto * tensor = open.add_boundary();
    tensor->set_name(kBoundaryTensor);
    tensor->set_width(terms.n_embd);
    tensor->set_prefill_dtype(terms.prefill_dtype);
    tensor->set_decode_dtype(terms.decode_dtype);
  }
  FillLimits(terms, open.mutable_limits());
  open.set_credit_bytes(credit_bytes);
  open.set_next_seq(next_seq);
  return open;
}

pb::Opened MakeOpened(const SeamTerms & terms, const pb::Open & open, uint64_t next_seq, uint64_t credit_bytes) {
  pb::Opened opened;
  opened.set_version(std::min(open.version(), kProtocolVersion));
  opened.set_attempt(open.attempt());
  opened.set_layer_first(terms.layer_first);
  opened.set_layer_last(terms.layer_last);
  FillLimits(terms, opened.mutable_limits());
  opened.set_credit_bytes(credit_bytes);
  opened.set_next_seq(next_seq);
  return opened;
}

Status CheckOpen(const SeamTerms & terms, const pb::Open & open) {
  if (open.version() == 0 || open.min_version() > kProtocolVersion || open.version() < kProtocolVersion) {
    return {Code::kVersionUnsupported, "the dialler speaks versions " + std::to_string(open.min_version()) + " to " +
                                           std::to_string(open.version()) + ", this end 1"};
  }
  if (EndFor(open.role()) != terms.end) return {Code::kRoleInvalid, "the ticket is for another end of the lane"};
  if (terms.end == wk::SEAM_ROLE_LOOP && (open.role() == pb::ROLE_LOOP_TAIL) != terms.is_head()) {
    return {Code::kRoleInvalid, "a loop has its head and its tail at different ends"};
  }
  if (open.model_digest() != terms.model_digest) return {Code::kModelMismatch, "the dialler serves another model"};
  if (Status s = CheckRange(terms, open.layer_first(), open.layer_last()); !s.ok()) return s;
  if (Status s = CheckBoundary(terms, open); !s.ok()) return s;
  return CheckLimits(open.limits());
}

Status CheckOpened(const SeamTerms & terms, uint32_t attempt, const pb::Opened & opened) {
  if (opened.version() != kProtocolVersion) {
    return {Code::kVersionUnsupported, "the listener answers version " + std::to_string(opened.version())};
  }
  if (opened.attempt() != attempt) return {Code::kAttemptStale, "the listener answers another attempt"};
  if (Status s = CheckRange(terms, opened.layer_first(), opened.layer_last()); !s.ok()) return s;
  return CheckLimits(opened.limits());
}

}  // namespace meshnet
