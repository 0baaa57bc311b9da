// Two ends of a seam, of which one dials the other.
#include <gtest/gtest.h>

#include "bounds.h"
#include "seam_end.h"

namespace meshnet {
namespace {

namespace pb = seam::v1;
namespace wk = worker::v1;
using Kind = NotedLane::Note::Kind;

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
