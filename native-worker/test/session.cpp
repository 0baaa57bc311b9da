#include "session.h"

#include <gtest/gtest.h>

#include "bounds.h"
#include "certificate.h"
#include "status_report.h"

namespace meshnet {

namespace pb = seam::v1;
namespace wk = worker::v1;

std::string TestModelDigest() { return std::string(kDigestBytes, 'm'); }

Frame EntryOpen(uint32_t attempt, uint32_t positions) {
  Frame frame;
  auto * open = frame.mutable_open();
  open->set_version(kProtocolVersion);
  open->set_min_version(kProtocolVersion);
  open->set_role(pb::ROLE_ENTRY);
  open->set_attempt(attempt);
  open->set_model_digest(TestModelDigest());
  open->mutable_limits()->set_max_packet_bytes(kMaxPacketBytes);
  open->mutable_limits()->set_max_frame_payload_bytes(kMaxPayloadBytes);
  open->mutable_limits()->set_max_positions(positions);
  open->set_credit_bytes(0);
  open->set_next_seq(1);
  return frame;
}

wk::AdmitRequest TestSession::MakeAdmit(const std::string & session, uint32_t stage, uint32_t n_stages,
                                        uint32_t positions) {
  wk::AdmitRequest request;
  request.mutable_lane()->set_session(session);
  request.mutable_lane()->set_epoch(1);
  request.mutable_lane()->set_stage(stage);
  request.set_n_stages(n_stages);
  request.set_model_digest(TestModelDigest());
  request.set_positions(positions);
  const auto wish = [&](wk::SeamRole role, const std::string & peer) {
    auto * seam = request.add_seams();
    seam->set_role(role);
    seam->set_peer_id(peer);
  };
  const bool head = stage == 0, tail = stage + 1 == n_stages;
  if (head) wish(wk::SEAM_ROLE_ENTRY, "gateway");
  if (!head) wish(wk::SEAM_ROLE_TO_PREVIOUS, "node" + std::to_string(stage - 1));
  if (!tail) wish(wk::SEAM_ROLE_TO_NEXT, "node" + std::to_string(stage + 1));
  if (n_stages > 2 && head) wish(wk::SEAM_ROLE_LOOP, "node" + std::to_string(n_stages - 1));
  if (n_stages > 2 && tail) wish(wk::SEAM_ROLE_LOOP, "node0");
  return request;
}

TestSession::TestSession(std::vector<WorkerProcess *> stages, char id, uint32_t positions, Path path)
    : stages_(std::move(stages)), path_(path), session_(kSessionBytes, id) {
  const auto n = static_cast<uint32_t>(stages_.size());
  admitted_.resize(n);
  described_.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    const auto describe = stages_[i]->Context(), admit = stages_[i]->Context();
    EXPECT_TRUE(stages_[i]->stub().Describe(describe.get(), {}, &described_[i]).ok());
    const auto status = stages_[i]->stub().Admit(admit.get(), MakeAdmit(session_, i, n, positions), &admitted_[i]);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  // One pair is dialled against the data, so that both directions are used.
  for (uint32_t i = 0; i + 1 < n; ++i) {
    if (i % 2 == 0) {
      Link(i + 1, wk::SEAM_ROLE_TO_PREVIOUS, i, wk::SEAM_ROLE_TO_NEXT);
    } else {
      Link(i, wk::SEAM_ROLE_TO_NEXT, i + 1, wk::SEAM_ROLE_TO_PREVIOUS);
    }
  }
  if (n > 2) Link(0, wk::SEAM_ROLE_LOOP, n - 1, wk::SEAM_ROLE_LOOP);
  OpenEntry(positions);
}

pb::Lane TestSession::lane(uint32_t stage) const {
  pb::Lane lane;
  lane.set_session(session_);
  lane.set_epoch(1);
  lane.set_stage(stage);
  return lane;
}

std::string TestSession::ticket(uint32_t stage, wk::SeamRole end) const {
  for (const auto & ticket : admitted_[stage].tickets()) {
    if (ticket.role() == end) return ticket.ticket();
  }
  ADD_FAILURE() << "no ticket for this end";
  return {};
}

void TestSession::Link(uint32_t listener, wk::SeamRole listening, uint32_t dialler, wk::SeamRole dialling) {
  const auto request = [&](uint32_t here, wk::SeamRole role, uint32_t there) {
    wk::LinkRequest link;
    *link.mutable_lane() = lane(here);
    link.set_role(role);
    if (path_ == Path::kDirect) link.set_peer_certificate_sha256(Sha256(described_[there].certificate()));
    link.set_peer_id("node" + std::to_string(there));
    link.set_attempt(1);
    link.set_timeout_ms(10000);
    return link;
  };
  wk::LinkReply reply;
  const auto expect = stages_[listener]->Context(), dial = stages_[dialler]->Context();
  auto status = stages_[listener]->stub().Link(expect.get(), request(listener, listening, dialler), &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
  auto dialled = request(dialler, dialling, listener);
  Aim(listener, listening, dialler, &dialled);
  status = stages_[dialler]->stub().Link(dial.get(), dialled, &reply);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

void TestSession::Aim(uint32_t listener, wk::SeamRole listening, uint32_t dialler, wk::LinkRequest * link) {
  link->set_ticket(ticket(listener, listening));
  if (path_ == Path::kDirect) {
    link->mutable_direct()->add_endpoints("127.0.0.1:" + std::to_string(described_[listener].seam_port()));
    link->mutable_direct()->set_certificate(described_[listener].certificate());
    return;
  }
  const std::string id = "bridge" + std::to_string(bridges_.size());
  const std::string socket = stages_[dialler]->socket_path() + "-" + id;
  bridges_.push_back(
      std::make_unique<Bridge>(socket, id, stages_[listener]->channel(),
                               SeamClient::Metadata{{"meshnet-ticket-bin", ticket(listener, listening)},
                                                    {"meshnet-token-bin", stages_[listener]->token()},
                                                    {"meshnet-peer", "node" + std::to_string(dialler)}}));
  link->mutable_bridge()->set_socket_path(socket);
  link->mutable_bridge()->set_bridge_id(id);
}

void TestSession::OpenEntry(uint32_t positions) {
  entry_ = std::make_unique<SeamClient>(stages_[0]->channel(),
                                        SeamClient::Metadata{{"meshnet-ticket-bin", ticket(0, wk::SEAM_ROLE_ENTRY)},
                                                             {"meshnet-token-bin", stages_[0]->token()},
                                                             {"meshnet-peer", "gateway"}});
  entry_->set_lane(key(0));
  entry_->SendFrame(EntryOpen(1, positions));
  const auto answer = entry_->Next();
  ASSERT_TRUE(answer && answer->has_opened()) << (answer ? answer->ShortDebugString() : "the stream ended");
}

void TestSession::SendTurn(const std::vector<int32_t> & prompt, uint32_t max_tokens) {
  Frame turn;
  turn.mutable_turn()->set_turn(++turn_);
  turn.mutable_turn()->set_start(next_position_);
  turn.mutable_turn()->set_n_tokens(static_cast<uint32_t>(prompt.size()));
  turn.mutable_turn()->set_max_tokens(max_tokens);
  turn.mutable_turn()->set_logprobs(-1);
  turn.mutable_turn()->set_ignore_end(true);
  entry_->SendNext(turn);
  Frame ids;
  ids.mutable_turn_tokens()->set_turn(turn_);
  ids.mutable_turn_tokens()->mutable_ids()->Add(prompt.begin(), prompt.end());
  ids.mutable_turn_tokens()->set_last(true);
  entry_->SendNext(ids);
}

std::vector<int32_t> TestSession::Run(const std::vector<int32_t> & prompt, uint32_t max_tokens) {
  SendTurn(prompt, max_tokens);
  std::vector<int32_t> tokens;
  for (;;) {
    const auto frame = entry_->NextOf(FrameKind::kRun);
    if (!frame) {
      ADD_FAILURE() << "the stream ended in a turn";
      return tokens;
    }
    tokens.insert(tokens.end(), frame->tokens().begin(), frame->tokens().end());
    if (frame->finish() == pb::FINISH_UNSPECIFIED) continue;
    next_position_ = frame->pos();
    return tokens;
  }
}

void TestSession::Release(uint32_t stage, pb::ErrorCode reason) {
  wk::ReleaseRequest request;
  *request.mutable_lane() = lane(stage);
  request.set_reason(reason);
  wk::ReleaseReply reply;
  const auto context = stages_[stage]->Context();
  EXPECT_TRUE(stages_[stage]->stub().Release(context.get(), request, &reply).ok());
}

}  // namespace meshnet
