// Who gets in at a seam that listens: strangers, wrong tickets, Opens that do not fit, later attempts.
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <chrono>

#include "bounds.h"
#include "seam_listening.h"
#include "service_limits.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;

constexpr auto kRefusedWithin = std::chrono::seconds(2);

class Strangers : public Listening {
 protected:
  void ExpectRefused(const std::shared_ptr<grpc::Channel> & channel) {
    EXPECT_FALSE(channel->WaitForConnected(std::chrono::system_clock::now() + kRefusedWithin));
    SeamClient client(channel, tail_.metadata());
    client.SendFrame(UpstreamOpen(1));
    EXPECT_EQ(client.WaitEnd().error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(tail_.traffic->bytes_in, 0u);
    EXPECT_EQ(tail_.lane.n_notes(), 0u);
    EXPECT_EQ(tail_.n_refused, 0);
  }
};

TEST_F(Strangers, a_certificate_that_nobody_named_ends_in_the_handshake) {
  Certificate stranger;
  ASSERT_TRUE(MakeCertificate(&stranger).ok());
  ExpectRefused(tail_.ChannelAs(stranger));
  // And the right one still gets through.
  Open();
}

TEST_F(Strangers, plaintext_ends_in_the_handshake) {
  ExpectRefused(grpc::CreateCustomChannel(tail_.address(), grpc::InsecureChannelCredentials(), ChannelLimits()));
  Open();
}

TEST_F(Strangers, tls_without_a_certificate_ends_in_the_handshake) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tail_.certificate.certificate_pem;
  auto arguments = ChannelLimits();
  arguments.SetSslTargetNameOverride("seam.meshnet");
  ExpectRefused(grpc::CreateCustomChannel(tail_.address(), grpc::SslCredentials(options), arguments));
  Open();
}

TEST_F(Strangers, a_certificate_is_a_stranger_again_when_its_lane_has_ended) {
  tail_.tickets.Remove(TailTerms().lane);
  ExpectRefused(tail_.ChannelAs(peer_));
}

TEST_F(Listening, answers_garbage_with_an_error) {
  auto client = Connect(tail_.ticket());
  client->SendBytes("\xff\xff\xff\xff garbage");
  EXPECT_EQ(client->NextError(), Code::kMalformed);
  client->WaitEnd();
  auto second = Connect(tail_.ticket());
  second->SendFrame(MakeRun(pb::PHASE_DECODE, 0, 1));
  EXPECT_EQ(second->NextError(), Code::kMalformed);
  EXPECT_EQ(tail_.lane.n_notes(), 0u);
}

TEST_F(Listening, refuses_a_wrong_ticket) {
  for (const std::string & ticket : {std::string(), std::string(kTicketBytes, 'x'), tail_.ticket().substr(1)}) {
    auto client = Connect(ticket);
    client->SendFrame(UpstreamOpen(1));
    EXPECT_EQ(client->NextError(), Code::kTicketInvalid);
  }
}

TEST_F(Listening, refuses_another_peer_with_the_right_ticket) {
  // Known to the listener for the sake of another lane.
  Certificate other;
  ASSERT_TRUE(MakeCertificate(&other).ok());
  tail_.peers->Add(other.sha256);
  SeamClient client(tail_.ChannelAs(other), tail_.metadata());
  client.set_lane(TailTerms().lane);
  client.SendFrame(UpstreamOpen(1));
  EXPECT_EQ(client.NextError(), Code::kPeerMismatch);
}

TEST_F(Listening, refuses_an_open_that_does_not_fit) {
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_min_version(2); }), Code::kVersionUnsupported);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_version(0); }), Code::kVersionUnsupported);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_role(pb::ROLE_DOWNSTREAM); }), Code::kRoleInvalid);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_role(static_cast<pb::Role>(77)); }), Code::kRoleInvalid);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_model_digest("other"); }), Code::kModelMismatch);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_layer_last(3); }), Code::kRangeMismatch);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->clear_boundary(); }), Code::kSchemaMismatch);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->mutable_boundary(0)->set_width(64); }), Code::kSchemaMismatch);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->mutable_boundary(0)->set_prefill_dtype(pb::DTYPE_F16); }),
            Code::kSchemaMismatch);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->mutable_limits()->set_max_packet_bytes(10); }),
            Code::kLimitExceeded);
  EXPECT_EQ(OpenCode([](Frame & f) { f.mutable_open()->set_next_seq(0); }), Code::kMalformed);
  auto client = Connect(tail_.ticket());
  LaneKey other = TailTerms().lane;
  other.session[0] = 'x';
  client->set_lane(other);
  client->SendFrame(UpstreamOpen(1));
  EXPECT_EQ(client->NextError(), Code::kLaneNotOpen);
  // None of that spoilt the seam.
  Open();
}

TEST_F(Listening, ends_a_stream_that_says_nothing) {
  SeamEnd impatient(50);
  impatient.peers->Add(peer_.sha256);
  SeamClient client(impatient.ChannelAs(peer_), tail_.metadata());
  EXPECT_EQ(client.NextError(), Code::kSeamTimeout);
  client.WaitEnd();
}

TEST_F(Listening, resends_to_a_higher_attempt_what_was_not_received) {
  auto first = Open();
  first->SendNext(MakeRun(pb::PHASE_DECODE, 0, 1));
  tail_.lane.Next(Kind::kDelivered);
  std::vector<std::string> sent;
  for (uint32_t i = 0; i < 3; ++i) tail_.lane.sink()->Send(MakeRun(pb::PHASE_LOOP, i + 1, 1));
  for (uint32_t i = 0; i < 3; ++i) {
    const auto frame = first->NextOf(FrameKind::kRun);
    ASSERT_TRUE(frame);
    sent.push_back(frame->SerializeAsString());
  }
  auto second = Connect(tail_.ticket());
  second->SkipTo(2);
  second->SendFrame(UpstreamOpen(2, 2));
  const auto answer = second->Next();
  ASSERT_TRUE(answer && answer->has_opened());
  EXPECT_EQ(answer->opened().next_seq(), 2u);
  EXPECT_EQ(answer->opened().attempt(), 2u);
  for (uint32_t i = 1; i < 3; ++i) {
    const auto frame = second->Next();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->SerializeAsString(), sent[i]);
  }
  first->WaitEnd();
  // The older stream's end is nobody's failure.
  second->SendNext(MakeRun(pb::PHASE_DECODE, 1, 1));
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.pos(), 1u);
}

TEST_F(Listening, refuses_an_attempt_that_is_not_higher) {
  auto first = Open(5);
  for (uint32_t attempt : {4u, 5u}) {
    auto client = Connect(tail_.ticket());
    client->SendFrame(UpstreamOpen(attempt));
    EXPECT_EQ(client->NextError(), Code::kAttemptStale);
  }
  first->SendNext(MakeRun(pb::PHASE_DECODE, 0, 1));
  tail_.lane.Next(Kind::kDelivered);
}

TEST_F(Listening, cannot_resume_from_what_was_acknowledged) {
  auto first = Open();
  tail_.lane.Next(Kind::kAttached);
  tail_.lane.sink()->Send(MakeRun(pb::PHASE_LOOP, 1, 1));
  tail_.lane.sink()->Send(MakeRun(pb::PHASE_LOOP, 2, 1));
  ASSERT_TRUE(first->NextOf(FrameKind::kRun));
  Frame run = MakeRun(pb::PHASE_DECODE, 0, 1);
  run.set_ack(2);
  first->SendNext(run);
  tail_.lane.Next(Kind::kDelivered);
  auto second = Connect(tail_.ticket());
  second->SendFrame(UpstreamOpen(2, 1));
  EXPECT_EQ(second->NextError(), Code::kResumeLost);
  EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, Code::kResumeLost);
}

}  // namespace
}  // namespace meshnet
