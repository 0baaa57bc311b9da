// Seams over real gRPC and TLS on loopback; the lane behind them only takes notes.
#include "seam.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <functional>

#include "bounds.h"
#include "seam_end.h"
#include "service_limits.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;
namespace wk = worker::v1;
using Kind = NotedLane::Note::Kind;

constexpr auto kRefusedWithin = std::chrono::seconds(2);

// A tail that listens, and its peer as a client.
class Listening : public testing::Test {
 protected:
  Listening() {
    EXPECT_TRUE(MakeCertificate(&peer_).ok());
    seam_ = tail_.AddLane(TailTerms(), peer_.sha256);
  }

  std::unique_ptr<SeamClient> Connect(const std::string & ticket) {
    auto client =
        std::make_unique<SeamClient>(tail_.ChannelAs(peer_), SeamClient::Metadata{{"meshnet-ticket-bin", ticket}});
    client->set_lane(TailTerms().lane);
    return client;
  }
  // Opened, with the answer checked.
  std::unique_ptr<SeamClient> Open(uint32_t attempt = 1, uint64_t next_seq = 1) {
    auto client = Connect(tail_.ticket());
    client->SendFrame(UpstreamOpen(attempt, next_seq));
    const auto answer = client->Next();
    EXPECT_TRUE(answer && answer->has_opened()) << (answer ? answer->ShortDebugString() : "the stream ended");
    if (answer) opened_ = answer->opened();
    return client;
  }
  // The answer to a changed Open.
  Code OpenCode(const std::function<void(Frame &)> & change) {
    auto client = Connect(tail_.ticket());
    Frame open = UpstreamOpen(1);
    change(open);
    client->SendFrame(open);
    const Code code = client->NextError();
    client->WaitEnd();
    return code;
  }
  // What an open stream's peer is told of a frame, and that the lane is told the same.
  Code FrameCode(const std::function<void(SeamClient &)> & send) {
    auto client = Open();
    send(*client);
    const Code code = client->NextError();
    EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, code);
    client->WaitEnd();
    return code;
  }

  Certificate peer_;
  SeamEnd tail_;
  std::shared_ptr<Seam> seam_;
  pb::Opened opened_;
};

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

TEST_F(Listening, delivers_frames_in_order) {
  auto client = Open();
  EXPECT_EQ(opened_.next_seq(), 1u);
  EXPECT_EQ(opened_.credit_bytes(), TailTerms().credit_bytes);
  EXPECT_EQ(tail_.lane.Next(Kind::kAttached).port, Port::kUp);
  EXPECT_EQ(tail_.lane.Next(Kind::kAttached).port, Port::kLoop);
  client->SendNext(MakeRun(pb::PHASE_PREFILL, 0, 8));
  client->SendNext(MakeRun(pb::PHASE_DECODE, 8, 1));
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.n_tokens(), 8u);
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.pos(), 8u);
}

TEST_F(Listening, refuses_frames_against_the_rules) {
  const auto next = [](const std::function<void(Frame &)> & change) {
    return [change](SeamClient & client) {
      Frame frame = MakeRun(pb::PHASE_DECODE, 0, 2);
      change(frame);
      client.SendNext(frame);
    };
  };
  // Each ends its seam, so each gets a lane of its own.
  const auto code = [&](const std::function<void(SeamClient &)> & send) {
    tail_.tickets.Remove(TailTerms().lane);
    seam_ = tail_.AddLane(TailTerms(), peer_.sha256);
    return FrameCode(send);
  };
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_tensors(0)->set_shape(0, 0); })), Code::kShapeInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_tensors(0)->add_shape(1); })), Code::kShapeInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_tensors(0)->set_name("other"); })), Code::kShapeInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_tensors(0)->set_dtype(pb::DTYPE_F16); })), Code::kDtypeInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_tensors(0)->mutable_data()->pop_back(); })), Code::kSizeMismatch);
  EXPECT_EQ(code(next([](Frame & f) { f.set_pos(63); })), Code::kPositionInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.set_n_tokens(0); })), Code::kPositionInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.set_phase(pb::PHASE_LOOP); })), Code::kRoleInvalid);
  EXPECT_EQ(code(next([](Frame & f) { f.set_phase(static_cast<pb::Phase>(9)); })), Code::kMalformed);
  EXPECT_EQ(code(next([](Frame & f) { f.mutable_credit()->set_bytes(1); })), Code::kMalformed);
  EXPECT_EQ(code([](SeamClient & client) {
              Frame frame = MakeRun(pb::PHASE_DECODE, 0, 1);
              frame.set_seq(2);
              client.SendFrame(frame);
            }),
            Code::kSeqGap);
  EXPECT_EQ(code([](SeamClient & client) { client.SendFrame(MakeRun(pb::PHASE_DECODE, 0, 1)); }), Code::kMalformed);
  EXPECT_EQ(code([](SeamClient & client) {
              Frame frame;
              frame.set_ack(1);
              client.SendFrame(frame);
            }),
            Code::kSeqGap);
  EXPECT_EQ(code([](SeamClient & client) {
              LaneKey other = TailTerms().lane;
              other.stage = 0;
              client.set_lane(other);
              client.SendNext(MakeRun(pb::PHASE_DECODE, 0, 1));
            }),
            Code::kLaneNotOpen);
  EXPECT_EQ(code([](SeamClient & client) { client.SendBytes(std::string(kMaxPacketBytes + 1, '\x0a')); }),
            Code::kFrameTooLarge);
  EXPECT_EQ(code([](SeamClient & client) {
              for (uint32_t i = 0; i < 3; ++i) client.SendNext(MakeRun(pb::PHASE_PREFILL, 8 * i, 8));
            }),
            Code::kCreditExceeded);
}

TEST_F(Listening, acknowledges_a_resent_frame_and_drops_it) {
  auto client = Open();
  Frame frame = MakeRun(pb::PHASE_DECODE, 0, 1);
  client->SendNext(frame);
  tail_.lane.Next(Kind::kDelivered);
  frame.set_seq(1);
  client->SendFrame(frame);
  const auto ack = client->Next();
  ASSERT_TRUE(ack);
  EXPECT_EQ(ack->ack(), 1u);
  client->SendNext(MakeRun(pb::PHASE_DECODE, 1, 1));
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.pos(), 1u);
}

TEST_F(Listening, acknowledges_alone_after_sixteen_frames) {
  auto client = Open();
  for (uint32_t i = 0; i < kAckEveryFrames; ++i) client->SendNext(MakeRun(pb::PHASE_DECODE, i, 1));
  const auto ack = client->Next();
  ASSERT_TRUE(ack);
  EXPECT_EQ(ack->ack(), kAckEveryFrames);
  EXPECT_EQ(ack->seq(), 0u);
}

TEST_F(Listening, grants_credit_again_by_half_windows) {
  auto client = Open();
  client->SendNext(MakeRun(pb::PHASE_PREFILL, 0, 8));
  client->SendNext(MakeRun(pb::PHASE_PREFILL, 8, 8));
  const uint64_t payload = PayloadBytes(tail_.lane.Next(Kind::kDelivered).frame);
  tail_.lane.Next(Kind::kDelivered);
  tail_.lane.sink()->Consumed(payload / 2);
  tail_.lane.sink()->Consumed(payload / 2);
  const auto credit = client->NextOf(FrameKind::kCredit);
  ASSERT_TRUE(credit);
  EXPECT_EQ(credit->credit().bytes(), payload);
  client->SendNext(MakeRun(pb::PHASE_PREFILL, 16, 8));
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.pos(), 16u);
}

TEST_F(Listening, reserves_no_more_than_the_peer_granted) {
  auto client = Open();
  tail_.lane.Next(Kind::kAttached);
  const uint64_t window = HeadTerms().credit_bytes;
  EXPECT_TRUE(tail_.lane.sink()->ReserveCredit(window));
  EXPECT_FALSE(tail_.lane.sink()->ReserveCredit(1));
  Frame credit;
  credit.mutable_credit()->set_bytes(10);
  client->SendFrame(credit);
  tail_.lane.Next(Kind::kWoken);
  EXPECT_TRUE(tail_.lane.sink()->ReserveCredit(10));
  EXPECT_FALSE(tail_.lane.sink()->ReserveCredit(1));
}

TEST_F(Listening, closes_in_order) {
  auto client = Open();
  client->SendNext(MakeRun(pb::PHASE_DECODE, 0, 1));
  tail_.lane.Next(Kind::kDelivered);
  tail_.lane.sink()->Send(MakeRun(pb::PHASE_LOOP, 1, 1));
  client->SendClose();
  EXPECT_EQ(tail_.lane.Next(Kind::kClosed).port, Port::kUp);
  tail_.lane.sink()->SendClose();
  ASSERT_TRUE(client->NextOf(FrameKind::kRun));
  const auto close = client->NextOf(FrameKind::kClose);
  ASSERT_TRUE(close);
  EXPECT_EQ(close->close().n_frames(), 1u);
  EXPECT_EQ(close->close().digest(), client->received_digest());
  EXPECT_TRUE(client->WaitEnd().ok());
}

TEST_F(Listening, refuses_a_close_with_another_digest) {
  EXPECT_EQ(FrameCode([](SeamClient & client) {
              client.SendNext(MakeRun(pb::PHASE_DECODE, 0, 1));
              Frame close;
              close.mutable_close()->set_n_frames(1);
              close.mutable_close()->set_digest(std::string(kDigestBytes, 'x'));
              client.SendNext(close);
            }),
            Code::kDigestMismatch);
}

TEST_F(Listening, fails_its_lane_when_the_stream_just_ends) {
  auto client = Open();
  client->EndWriting();
  EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, Code::kStreamEnded);
}

TEST_F(Listening, fails_its_lane_when_the_connection_breaks) {
  Open().reset();
  EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, Code::kStreamEnded);
}

TEST_F(Listening, hands_an_error_to_the_lane) {
  auto client = Open();
  Frame error;
  error.mutable_error()->set_code(pb::ERROR_CODE_DECODE_FAILED);
  client->SendFrame(error);
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.error().code(), pb::ERROR_CODE_DECODE_FAILED);
  client->WaitEnd();
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

// Two ends, one dials the other.
class Pair : public testing::Test {
 protected:
  Pair() {
    tail_seam_ = tail_.AddLane(TailTerms(), head_.certificate.sha256);
    head_seam_ = head_.AddLane(HeadTerms(), tail_.certificate.sha256);
  }
  wk::LinkRequest Request(uint32_t attempt = 1) {
    wk::LinkRequest request;
    request.set_peer_certificate_sha256(tail_.certificate.sha256);
    request.mutable_direct()->add_endpoints(tail_.address());
    request.mutable_direct()->set_certificate(tail_.certificate.der);
    request.set_ticket(tail_.ticket());
    request.set_attempt(attempt);
    request.set_timeout_ms(5000);
    return request;
  }
  Code Dial(const wk::LinkRequest & request) { return head_.dialler->Dial(head_seam_, request, &reply_).code(); }

  SeamEnd tail_, head_;
  std::shared_ptr<Seam> tail_seam_, head_seam_;
  wk::LinkReply reply_;
};

TEST_F(Pair, carries_frames_both_ways_and_closes) {
  ASSERT_EQ(Dial(Request()), Code::kOk);
  EXPECT_EQ(reply_.endpoint(), tail_.address());
  EXPECT_GT(reply_.rtt_us(), 0u);
  tail_.lane.Next(Kind::kAttached);
  head_.lane.Next(Kind::kAttached);
  EXPECT_EQ(head_.lane.sink()->MaxChunkTokens(), 8u);
  ASSERT_TRUE(head_.lane.sink()->ReserveCredit(8 * 32 * 4));
  head_.lane.sink()->Send(MakeRun(pb::PHASE_PREFILL, 0, 8));
  EXPECT_EQ(tail_.lane.Next(Kind::kDelivered).frame.lane().stage(), 1u);
  tail_.lane.sink()->Send(MakeRun(pb::PHASE_LOOP, 8, 1));
  const auto loop = head_.lane.Next(Kind::kDelivered);
  EXPECT_EQ(loop.port, Port::kDown);
  EXPECT_EQ(loop.frame.lane().stage(), 0u);
  head_.lane.sink()->SendClose();
  tail_.lane.Next(Kind::kClosed);
  tail_.lane.sink()->SendClose();
  head_.lane.Next(Kind::kClosed);
}

TEST_F(Pair, reconnects_without_losing_or_repeating_a_frame) {
  ASSERT_EQ(Dial(Request(1)), Code::kOk);
  head_.lane.Next(Kind::kAttached);
  constexpr uint32_t kFrames = 60;
  for (uint32_t i = 0; i < kFrames; ++i) {
    if (i % 20 == 10) {
      ASSERT_EQ(Dial(Request(2 + i / 20)), Code::kOk);
    }
    head_.lane.sink()->Send(MakeRun(pb::PHASE_DECODE, i, 1));
    if (i == 0) tail_.lane.Next(Kind::kAttached);
  }
  for (uint32_t i = 0; i < kFrames; ++i) {
    ASSERT_EQ(tail_.lane.Next(Kind::kDelivered).frame.pos(), i);
  }
  head_.lane.sink()->SendClose();
  tail_.lane.Next(Kind::kClosed);
}

TEST_F(Pair, refuses_a_listener_that_is_another) {
  auto request = Request();
  request.mutable_direct()->set_certificate(head_.certificate.der);
  EXPECT_EQ(Dial(request), Code::kDigestMismatch);
  request.set_peer_certificate_sha256(head_.certificate.sha256);
  request.set_timeout_ms(500);
  EXPECT_EQ(Dial(request), Code::kSeamUnreachable);
  EXPECT_EQ(tail_.lane.n_notes(), 0u);
  // The next attempt is free.
  EXPECT_EQ(Dial(Request()), Code::kOk);
}

TEST_F(Pair, gives_the_other_ends_refusal) {
  auto request = Request();
  request.set_ticket(std::string(kTicketBytes, 'x'));
  EXPECT_EQ(Dial(request), Code::kTicketInvalid);
  EXPECT_EQ(Dial(Request(2)), Code::kOk);
  EXPECT_EQ(Dial(Request(2)), Code::kAttemptStale);
}

TEST_F(Pair, dials_hosts_and_ports_only) {
  for (const char * endpoint : {"unix:/tmp/x", "dns:///a:1/", "", "a b:1", "127.0.0.1:1?x"}) {
    auto request = Request();
    request.mutable_direct()->set_endpoints(0, endpoint);
    EXPECT_EQ(Dial(request), Code::kMalformed) << endpoint;
  }
  auto request = Request();
  request.mutable_direct()->set_endpoints(0, "127.0.0.1:1");
  request.mutable_direct()->add_endpoints(tail_.address());
  request.set_timeout_ms(2000);
  EXPECT_EQ(Dial(request), Code::kOk);
}

TEST_F(Pair, tells_both_lanes_when_one_breaks_the_rules) {
  ASSERT_EQ(Dial(Request()), Code::kOk);
  head_.lane.Next(Kind::kAttached);
  head_.lane.sink()->Send(MakeRun(pb::PHASE_DECODE, 200, 1));
  EXPECT_EQ(tail_.lane.Next(Kind::kFailed).code, Code::kPositionInvalid);
  EXPECT_EQ(head_.lane.Next(Kind::kDelivered).frame.error().code(), pb::ERROR_CODE_POSITION_INVALID);
}

TEST_F(Pair, tells_the_other_end_why_a_lane_was_shut) {
  ASSERT_EQ(Dial(Request()), Code::kOk);
  head_.lane.Next(Kind::kAttached);
  tail_seam_->Shut({Code::kLeaseExpired, "silence"});
  EXPECT_EQ(head_.lane.Next(Kind::kDelivered).frame.error().code(), pb::ERROR_CODE_LEASE_EXPIRED);
}

}  // namespace
}  // namespace meshnet
