#include "seam_end.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>

#include "bounds.h"
#include "service_limits.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;
namespace wk = worker::v1;

constexpr auto kPatience = std::chrono::seconds(10);
constexpr uint32_t kWidth = 32;

SeamTerms Terms() {
  SeamTerms terms;
  terms.lane = {std::string(kSessionBytes, 's'), 1, 0};
  terms.n_stages = 2;
  terms.model_digest = std::string(kDigestBytes, 'm');
  terms.n_layer = 4;
  terms.n_embd = kWidth;
  terms.n_vocab = 100;
  terms.max_chunk_tokens = 8;
  terms.positions = 64;
  terms.credit_bytes = 2 * 8 * kWidth * 4;
  return terms;
}

}  // namespace

Status NotedLane::Attach(const LaneKey &, Port port, std::shared_ptr<FrameSink> sink) {
  {
    std::lock_guard lock(mu_);
    sink_ = std::move(sink);
  }
  Add({Note::Kind::kAttached, port});
  return {};
}

Status NotedLane::Deliver(const LaneKey &, Port from, Frame frame) {
  Add({Note::Kind::kDelivered, from, std::move(frame)});
  return {};
}

void NotedLane::PortClosed(const LaneKey &, Port port) { Add({Note::Kind::kClosed, port}); }

void NotedLane::PortFailed(const LaneKey &, Port port, const Status & why) {
  Add({Note::Kind::kFailed, port, {}, why.code()});
}

void NotedLane::Wake() { Add({Note::Kind::kWoken}); }

NotedLane::Note NotedLane::Next(Note::Kind kind) {
  std::unique_lock lock(mu_);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    if (!news_.wait_until(lock, deadline, [&] { return !notes_.empty(); })) {
      ADD_FAILURE() << "the lane was told nothing of the kind";
      return {kind};
    }
    Note note = std::move(notes_.front());
    notes_.pop_front();
    if (note.kind == kind) return note;
  }
}

std::shared_ptr<FrameSink> NotedLane::sink() const {
  std::lock_guard lock(mu_);
  return sink_;
}

size_t NotedLane::n_notes() const {
  std::lock_guard lock(mu_);
  return n_notes_;
}

void NotedLane::Add(Note note) {
  std::lock_guard lock(mu_);
  notes_.push_back(std::move(note));
  ++n_notes_;
  news_.notify_all();
}

SeamEnd::SeamEnd(uint32_t handshake_ms) {
  EXPECT_TRUE(MakeCertificate(&certificate).ok());
  EXPECT_TRUE(RandomBytes(kTicketBytes, &ticket_));
  dialler = std::make_unique<Dialler>(certificate, traffic, true);
  SeamServiceParts parts{&tickets, &timer, traffic, [this](Code) { ++n_refused; }, handshake_ms};
  service_ = std::make_unique<SeamService>(std::move(parts), std::string());
  grpc::ServerBuilder builder;
  LimitServer(&builder);
  builder.AddListeningPort("127.0.0.1:0", SeamServerCredentials(certificate, peers), &port_);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
}

SeamEnd::~SeamEnd() {
  for (const auto & key : tickets.keys()) {
    for (const auto & seam : tickets.Remove(key)) seam->Shut({Code::kCancelled, "the test has ended"});
  }
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_TRUE(traffic->WaitNoDialled(std::chrono::steady_clock::now() + kPatience));
  timer.Stop();
}

std::shared_ptr<Seam> SeamEnd::AddLane(const SeamTerms & terms, const std::string & peer_sha256) {
  auto seam = std::make_shared<Seam>(terms, &lane, &timer, [this](Code) { ++n_refused; });
  uint64_t admission = 0;
  EXPECT_TRUE(tickets.Add(terms.lane, {{seam, ticket_, "peer", {}}}, &admission).ok());
  std::shared_ptr<Seam> found;
  EXPECT_TRUE(tickets.Expect(terms.lane, terms.end, "peer", peer_sha256, &found).ok());
  EXPECT_EQ(found, seam);
  return seam;
}

std::shared_ptr<grpc::Channel> SeamEnd::ChannelAs(const Certificate & own) const {
  return grpc::CreateCustomChannel("dns:///" + address(), SeamChannelCredentials(own, certificate.sha256),
                                   SeamChannelLimits());
}

SeamTerms TailTerms() {
  SeamTerms terms = Terms();
  terms.lane.stage = 1;
  terms.end = wk::SEAM_ROLE_TO_PREVIOUS;
  terms.layer_first = 2;
  terms.layer_last = 4;
  return terms;
}

SeamTerms HeadTerms() {
  SeamTerms terms = Terms();
  terms.end = wk::SEAM_ROLE_TO_NEXT;
  terms.layer_first = 0;
  terms.layer_last = 2;
  return terms;
}

Frame UpstreamOpen(uint32_t attempt, uint64_t next_seq) {
  Frame frame;
  *frame.mutable_open() = MakeOpen(HeadTerms(), attempt, next_seq, HeadTerms().credit_bytes);
  return frame;
}

Frame MakeRun(pb::Phase phase, uint32_t pos, uint32_t n) {
  Frame frame;
  frame.set_branch(1);
  frame.set_phase(phase);
  frame.set_pos(pos);
  frame.set_n_tokens(n);
  frame.set_chunk_end(true);
  if (phase == pb::PHASE_LOOP) {
    for (uint32_t i = 0; i < n; ++i) frame.add_tokens(static_cast<int32_t>(i));
    return frame;
  }
  auto * tensor = frame.add_tensors();
  tensor->set_name(kBoundaryTensor);
  tensor->set_dtype(pb::DTYPE_F32);
  tensor->add_shape(n);
  tensor->add_shape(kWidth);
  tensor->set_data(std::string(size_t{n} * kWidth * 4, '\0'));
  return frame;
}

}  // namespace meshnet
