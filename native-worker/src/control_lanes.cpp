// The half of WorkerState that answers for lanes: admission, links, more positions, release.
#include <algorithm>
#include <utility>

#include "bounds.h"
#include "control_state.h"
#include "status_report.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;
namespace wk = meshnet::worker::v1;

LaneKey KeyOf(const pb::Lane & lane) { return {lane.session(), lane.epoch(), lane.stage()}; }

pb::DType OrF32(pb::DType dtype) { return dtype == pb::DTYPE_UNSPECIFIED ? pb::DTYPE_F32 : dtype; }

}  // namespace

Status WorkerState::MakeEnds(const wk::AdmitRequest & request, const LaneParams & lane, const Engine & engine,
                             std::vector<Tickets::End> * ends) {
  const ShardInfo & info = engine.shard_info();
  for (const auto & wish : request.seams()) {
    SeamTerms terms;
    terms.lane = lane.key;
    terms.end = wish.role();
    terms.n_stages = lane.n_stages;
    terms.model_digest = request.model_digest();
    terms.layer_first = static_cast<uint32_t>(info.layer_first);
    terms.layer_last = static_cast<uint32_t>(info.layer_last);
    terms.n_layer = static_cast<uint32_t>(info.n_layer);
    terms.n_embd = static_cast<uint32_t>(info.n_embd);
    terms.n_vocab = static_cast<uint32_t>(info.n_vocab);
    terms.max_chunk_tokens = info.n_ubatch;
    terms.positions = lane.positions;
    terms.max_positions = info.n_ctx;
    terms.credit_bytes = engine.initial_credit();
    terms.prefill_dtype = lane.prefill_dtype;
    terms.decode_dtype = lane.decode_dtype;
    if (Status s = CheckTerms(terms); !s.ok()) return s;
    for (const auto & other : *ends) {
      if (other.seam->terms().end == terms.end) return {Code::kMalformed, "a seam is wished for twice"};
    }
    if (wish.peer_id().size() > kMaxPeerIdBytes) return {Code::kLimitExceeded, "a peer id is too long"};
    Tickets::End end;
    if (!RandomBytes(kTicketBytes, &end.ticket)) return {Code::kInternal, "the system gives no random bytes"};
    end.peer_id = wish.peer_id();
    end.seam = std::make_shared<Seam>(std::move(terms), this, timer_, [this](Code code) { Refused(code); });
    ends->push_back(std::move(end));
  }
  return {};
}

Status WorkerState::Admit(const wk::AdmitRequest & request, wk::AdmitReply * reply) {
  std::shared_ptr<Engine> engine;
  if (Status s = ReadyEngine(&engine); !s.ok()) return s;
  {
    std::lock_guard lock(mu_);
    if (state_ == wk::STATE_DRAINING) return {Code::kDraining, "the worker takes no new sessions"};
  }
  const ShardInfo & info = engine->shard_info();
  LaneParams lane;
  lane.key = KeyOf(request.lane());
  lane.n_stages = request.n_stages();
  lane.positions = request.positions();
  lane.prefill_dtype = OrF32(request.prefill_dtype());
  lane.decode_dtype = OrF32(request.decode_dtype());
  if (lane.key.session.size() != kSessionBytes) return {Code::kMalformed, "a session id has 16 bytes"};
  if (request.model_digest().size() != kDigestBytes) return {Code::kMalformed, "a model digest has 32 bytes"};
  if (!identity_.model_digest.empty() && request.model_digest() != identity_.model_digest) {
    return {Code::kModelMismatch, "this worker serves another model"};
  }
  if (lane.n_stages == 0 || lane.n_stages > kMaxStages) return {Code::kLimitExceeded, "1 to 16 stages"};
  const bool first = lane.key.stage == 0, last = lane.key.stage + 1 == lane.n_stages;
  if (lane.key.stage >= lane.n_stages || first != info.is_head || last != info.is_tail) {
    return {Code::kRangeMismatch, "stage " + std::to_string(lane.key.stage) + " of " + std::to_string(lane.n_stages) +
                                      " does not fit the layers of this shard"};
  }
  if (lane.positions == 0 || lane.positions > INT32_MAX) return {Code::kLimitExceeded, "positions must be 1 or more"};

  std::vector<Tickets::End> ends;
  if (Status s = MakeEnds(request, lane, *engine, &ends); !s.ok()) return s;
  for (const auto & end : ends) {
    if (end.seam->terms().end == wk::SEAM_ROLE_ENTRY) lane.client = end.peer_id;
  }
  for (const auto & end : ends) {
    auto * ticket = reply->add_tickets();
    ticket->set_role(end.seam->terms().end);
    ticket->set_ticket(end.ticket);
  }
  reply->set_positions(lane.positions);

  uint64_t admission = 0;
  if (Status s = tickets_.Add(lane.key, std::move(ends), &admission); !s.ok()) return s;
  if (Status s = engine->Admit(lane); !s.ok()) {
    tickets_.Remove(lane.key, admission);
    return s;
  }
  // A route of one stage has nothing to link: its lease alone holds it.
  if (lane.n_stages == 1) return {};
  const uint32_t hold = request.hold_ms() == 0 ? kDefaultHoldMs : std::min(request.hold_ms(), kMaxHoldMs);
  timer_->After(hold, [this, key = lane.key, admission] {
    const auto running = this->engine();
    if (running && tickets_.IsUnused(key, admission)) {
      running->Release(key, {Code::kLeaseExpired, "nobody linked the lane in time"});
    }
  });
  return {};
}

Status WorkerState::Link(const wk::LinkRequest & request, wk::LinkReply * reply) {
  std::shared_ptr<Engine> engine;
  if (Status s = ReadyEngine(&engine); !s.ok()) return s;
  const std::string & sha256 = request.peer_certificate_sha256();
  if (!sha256.empty() && sha256.size() != kDigestBytes) return {Code::kMalformed, "a certificate hash has 32 bytes"};
  if (request.peer_id().size() > kMaxPeerIdBytes) return {Code::kLimitExceeded, "a peer id is too long"};
  std::shared_ptr<Seam> seam;
  if (Status s = tickets_.Expect(KeyOf(request.lane()), request.role(), request.peer_id(), sha256, &seam); !s.ok()) {
    return s;
  }
  if (!request.has_direct() && !request.has_bridge()) return {};
  if (request.role() == wk::SEAM_ROLE_ENTRY) return {Code::kRoleInvalid, "the gateway dials the entry seam"};
  return dialler_.Dial(seam, request, reply);
}

Status WorkerState::Extend(const wk::ExtendRequest & request) {
  std::shared_ptr<Engine> engine;
  if (Status s = ReadyEngine(&engine); !s.ok()) return s;
  const uint32_t positions = request.positions();
  if (positions == 0 || positions > INT32_MAX) return {Code::kLimitExceeded, "positions must be 1 or more"};
  return engine->Extend(KeyOf(request.lane()), positions);
}

Status WorkerState::Release(const wk::ReleaseRequest & request) {
  const LaneKey key = KeyOf(request.lane());
  const auto engine = this->engine();
  if (!engine) return {};
  Status why;
  if (request.reason() != pb::ERROR_CODE_UNSPECIFIED) {
    why = Status(CodeFrom(request.reason()), "the lane was released by its node");
  }
  engine->Release(key, why);
  return {};
}

}  // namespace meshnet
