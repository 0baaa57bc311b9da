// An open seam over real gRPC and TLS on loopback; the lane behind it only takes notes.
#include "seam.h"

#include <gtest/gtest.h>

#include <functional>

#include "bounds.h"
#include "seam_listening.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;

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

}  // namespace
}  // namespace meshnet
