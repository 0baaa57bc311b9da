// Lanes of later stages alone: activations in, activations or loop tokens out.
#include <gtest/gtest.h>

#include "emission.h"
#include "lane_stand.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_UNSPECIFIED;
using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_PREFILL;

TEST(MiddleLane, ForwardsInOrderAndSplitsWhatIsTooLong) {
  Middle t;
  ASSERT_TRUE(t.Turn(1, 0, 12, 1).ok());
  ASSERT_TRUE(t.Ids(1, 12).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 5, 1, false).ok());
  EXPECT_FALSE(t.lane->Ready()->complete);
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 5, 7, 1).ok());
  t.Run();
  EXPECT_EQ(t.up->consumed, 5 * kWidth * 4);
  t.Run();
  EXPECT_EQ(t.up->consumed, 12 * kWidth * 4);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 12, 1, 1).ok());
  t.Run();
  EXPECT_EQ(t.Take(), (Log{"down: turn 1 b1", "down: ids 12 b1", "down: prefill 0+8 b1", "down: prefill 8+4 end b1",
                           "down: decode 12 end b1"}));
}

TEST(MiddleLane, DropsWhatACancelOrATurnOvertakes) {
  Middle t;
  ASSERT_TRUE(t.Turn(1, 0, 8, 1).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_EQ(t.host.settled, (std::vector<uint64_t>{1}));
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 4, 4, 1).ok());  // stale
  EXPECT_EQ(t.up->consumed, 8 * kWidth * 4);
  EXPECT_EQ(t.lane->stale_frames(), 1U);
  t.Take();

  ASSERT_TRUE(t.Turn(2, 0, 4, 2).ok());
  ASSERT_TRUE(t.Ids(2, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 2).ok());
  t.Run();
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 4, 1, 2).ok());
  ASSERT_TRUE(t.Turn(3, 2, 4, 3).ok());
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_EQ(t.Take(), (Log{"down: turn 2 b2", "down: ids 4 b2", "down: prefill 0+4 end b2", "truncate 3 to 2",
                           "down: turn 3 b3"}));
  EXPECT_EQ(t.Turn(4, 2, 4, 3).code(), Code::kBranchStale);
}

TEST(MiddleLane, RefusesRunsThatDoNotFollow) {
  const auto begun = [](Middle & t) {
    ASSERT_TRUE(t.Turn(1, 0, 8, 1).ok());
    ASSERT_TRUE(t.Ids(1, 8).ok());
  };
  struct Case {
    Code code;
    seam::v1::Phase phase;
    uint32_t pos, n, branch;
  };
  for (const Case & c :
       {Case{Code::kPositionInvalid, PHASE_PREFILL, 1, 4, 1}, Case{Code::kBranchStale, PHASE_PREFILL, 0, 4, 2},
        Case{Code::kPositionInvalid, PHASE_PREFILL, 0, 9, 1}, Case{Code::kPositionInvalid, PHASE_DECODE, 0, 1, 1}}) {
    Middle t;
    begun(t);
    EXPECT_EQ(t.Activation(c.phase, c.pos, c.n, c.branch).code(), c.code);
  }
  Middle early;
  ASSERT_TRUE(early.Turn(1, 0, 8, 1).ok());
  EXPECT_EQ(early.Activation(PHASE_PREFILL, 0, 4, 1).code(), Code::kTurnInvalid);
  Middle t;
  begun(t);
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 8, 1).ok());
  t.Run();
  EXPECT_EQ(t.Activation(PHASE_DECODE, 8, 2, 1).code(), Code::kShapeInvalid);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 8, 1, 1).ok());
  EXPECT_EQ(t.Activation(PHASE_DECODE, 9, 1, 1).code(), Code::kRateExceeded);
}

TEST(TailLane, DrawsAfterThePromptAndEveryStep) {
  Tail t(3);
  ASSERT_TRUE(t.Turn(1, 0, 10, 1, 3).ok());
  ASSERT_TRUE(t.Ids(1, 10).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 8, 1).ok());
  t.Run(7);
  EXPECT_TRUE(t.Take().empty());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 8, 2, 1).ok());
  t.Run(7);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 10, 1, 1).ok());
  t.Run(8);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 11, 1, 1).ok());
  t.Run(9);
  EXPECT_EQ(t.Take(), (Log{"loop: loop 10=7 b1", "loop: loop 11=8 b1", "loop: loop 12=9 finish 2 b1"}));
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_TRUE(t.Take().empty());
}

TEST(TailLane, EndsAtTheEndTokenAndAnswersCancel) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  t.Run(2);
  ASSERT_TRUE(t.Turn(2, 4, 4, 2).ok());
  EXPECT_EQ(t.Turn(3, 4, 4, 3).code(), Code::kTurnInvalid);
  ASSERT_TRUE(t.Ids(2, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 4, 2, 2, false).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=2 finish 1 b1", "up: loop 4 finish 4 b2"}));
}

TEST(TailLane, EndsATurnWhereItCouldWhenItBegan) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 31, 1).ok());
  ASSERT_TRUE(t.Ids(1, 31).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 31, 1).ok());
  for (int i = 0; i < 4; i++) t.Run(6);
  t.lane->Extend(64);  // the head may not have heard of it
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 31, 1, 1).ok());
  t.Run(7);
  EXPECT_EQ(t.Take(), (Log{"up: loop 31=6 b1", "up: loop 32=7 finish 3 b1"}));
  ASSERT_TRUE(t.Turn(2, 32, 32, 2).ok());
}

TEST(TailLane, RunsNothingWhileItsTokenIsDrawn) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  const LaneRun run = t.lane->Plan(4);
  t.lane->Advance(run, t.now);
  Emission emission;
  ASSERT_TRUE(t.lane->Announce(run, {}, &emission).ok());
  // From a head that does not wait for the token.
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 4, 1, 1).ok());
  EXPECT_FALSE(t.lane->Ready().has_value());
  t.lane->Accept({.token = 7, .end_of_generation = false, .logprobs = {}}, FINISH_UNSPECIFIED, t.now);
  EXPECT_TRUE(t.lane->Ready().has_value());
}

TEST(TailLane, SendsOneFinishWhenACancelMeetsItsLastToken) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  const LaneRun run = t.lane->Plan(4);
  t.lane->Advance(run, t.now);
  const Drawn drawn{.token = 7, .end_of_generation = false, .logprobs = {}};
  Emission emission;
  ASSERT_TRUE(t.lane->Announce(run, {}, &emission).ok());
  const auto finish = Complete(drawn, 1, t.now, &emission);
  emission.sink->Send(std::move(emission.frame));
  t.host.on_recall = [&] { t.lane->Accept(drawn, finish, t.now); };
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=7 finish 2 b1"}));
  EXPECT_FALSE(t.lane->busy());
}

}  // namespace
}  // namespace meshnet
