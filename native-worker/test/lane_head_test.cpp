// A head lane alone: turns, ids and loop tokens in, what goes down the route and up to the gateway out.
#include <gtest/gtest.h>

#include "lane_stand.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::FINISH_END;
using seam::v1::FINISH_UNSPECIFIED;

TEST(HeadLane, RunsATurnStepByStep) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 11).ok());
  ASSERT_TRUE(t.Ids(1, 5, false).ok());
  EXPECT_FALSE(t.lane->Ready());
  ASSERT_TRUE(t.Ids(1, 6).ok());
  EXPECT_EQ(t.lane->Ready()->rows, 8U);
  EXPECT_EQ(t.lane->Ready()->waiting, 11U);
  t.Run();
  EXPECT_EQ(t.lane->Ready()->waiting, 3U);
  t.Run();
  EXPECT_EQ(t.Take(), (Log{"down: turn 1 b1", "down: ids 5 b1", "down: ids 6 b1", "down: prefill 0+8 end b1",
                           "down: prefill 8+3 end b1"}));
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_TRUE(t.lane->generating());
  ASSERT_TRUE(t.Loop(Port::kDown, 11, 42, 1).ok());
  t.Run();
  EXPECT_EQ(t.last_input, 42);
  ASSERT_TRUE(t.Loop(Port::kDown, 12, 2, 1, FINISH_END).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 11=42 b1", "down: decode 11 end b1", "up: loop 12=2 finish 1 b1"}));
  EXPECT_FALSE(t.lane->busy());

  ASSERT_TRUE(t.Turn(2, 4, 2).ok());
  EXPECT_EQ(t.Take(), (Log{"truncate 3 to 4", "down: turn 2 b2"}));
}

TEST(HeadLane, RefusesTurnsOutOfOrder) {
  EXPECT_EQ(Head().Turn(1, 1, 4).code(), Code::kPositionInvalid);
  EXPECT_EQ(Head().Turn(1, 0, 33).code(), Code::kContextFull);
  EXPECT_EQ(Head().Turn(0, 0, 4).code(), Code::kTurnInvalid);
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 4).ok());
  EXPECT_EQ(t.Turn(2, 0, 4).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(2, 4).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(1, 4, false).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(1, 5).code(), Code::kTurnInvalid);
}

TEST(HeadLane, TakesLongerTurnsOnceItHasMorePositions) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 8, 2, 1, FINISH_END).ok());
  t.lane->Extend(64);
  t.lane->Extend(16);
  ASSERT_TRUE(t.Turn(2, 8, 56).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 8, -1, 2, FINISH_CANCELLED).ok());
  EXPECT_EQ(t.Turn(3, 8, 57).code(), Code::kContextFull);
}

TEST(HeadLane, RefusesWhatARewindCannotReach) {
  Head t;
  t.host.min_rewind = 6;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 8, 2, 1, FINISH_END).ok());
  EXPECT_EQ(t.Turn(2, 5, 1).code(), Code::kRewindLost);
}

TEST(HeadLane, SendsOneFinishWhenCancelMeetsATokenOnItsWay) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 4).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  t.Run();
  t.Take();
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Cancel(7).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, 42, 1).ok());  // was drawn before the tail knew
  EXPECT_FALSE(t.lane->Ready());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, -1, 1, FINISH_CANCELLED).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, -1, 1, FINISH_CANCELLED).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_EQ(t.Take(), (Log{"down: cancel 1 b1", "up: loop 4=42 b1", "up: loop 4 finish 4 b1"}));
  EXPECT_EQ(t.lane->stale_frames(), 1U);
}

TEST(HeadLane, GoesBackToWhereACancelledTailWas) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 3, -1, 1, FINISH_CANCELLED).ok());
  t.Take();
  EXPECT_EQ(t.Turn(2, 4, 1).code(), Code::kPositionInvalid);
  ASSERT_TRUE(t.Turn(2, 3, 1).ok());
  EXPECT_EQ(t.Take(), (Log{"truncate 3 to 3", "down: turn 2 b2"}));
}

TEST(HeadLane, ChecksWhatTheTailSends) {
  const auto ready = [](Head & t) {
    ASSERT_TRUE(t.Turn(1, 0, 4, 0, 2).ok());
    ASSERT_TRUE(t.Ids(1, 4).ok());
    t.Run();
  };
  struct Case {
    Code code;
    uint32_t pos;
    int32_t token;
    uint32_t branch;
    seam::v1::Finish finish;
  };
  for (const Case & c :
       {Case{Code::kPositionInvalid, 5, 1, 1, FINISH_UNSPECIFIED},
        Case{Code::kBranchStale, 4, 1, 2, FINISH_UNSPECIFIED},
        Case{Code::kTokenInvalid, 4, kVocab, 1, FINISH_UNSPECIFIED}, Case{Code::kMalformed, 4, -1, 1, FINISH_END},
        Case{Code::kMalformed, 4, -1, 1, FINISH_CANCELLED},
        Case{Code::kMalformed, 4, 1, 1, static_cast<seam::v1::Finish>(9)}}) {
    Head t;
    ready(t);
    EXPECT_EQ(t.Loop(Port::kDown, c.pos, c.token, c.branch, c.finish).code(), c.code);
  }
  Head t;
  ready(t);
  ASSERT_TRUE(t.Loop(Port::kDown, 4, 1, 1).ok());
  EXPECT_EQ(t.Loop(Port::kDown, 4, 1, 1).code(), Code::kPositionInvalid);  // twice
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 5, 1, 1).ok());
  t.Run();
  EXPECT_EQ(t.Loop(Port::kDown, 6, 1, 1).code(), Code::kLimitExceeded);  // a third of two
  EXPECT_EQ(t.Loop(Port::kLoop, 6, 1, 1).code(), Code::kMalformed);
  EXPECT_EQ(Head(3).Loop(Port::kDown, 0, 1, 0).code(), Code::kMalformed);
}

TEST(HeadLane, SitsOutWithoutCreditAndTimesOut) {
  Head t;
  t.down->credit = 8 * kWidth * 4;
  ASSERT_TRUE(t.Turn(1, 0, 16).ok());
  ASSERT_TRUE(t.Ids(1, 16).ok());
  EXPECT_EQ(t.lane->deadline_us(), UINT64_MAX);
  t.Run();
  const LaneRun next = t.lane->Plan(8);
  EXPECT_FALSE(t.lane->Reserve(next, t.now));
  EXPECT_TRUE(t.lane->Ready()->blocked);
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);
  t.lane->Unblock();
  EXPECT_FALSE(t.lane->Ready()->blocked);
  t.down->credit = 1 << 20;
  t.Run();
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);  // now the tail owes a token
}

TEST(HeadLane, KeepsToTheNextStagesChunk) {
  Head t;
  t.down->max_chunk = 3;
  ASSERT_TRUE(t.Turn(1, 0, 7).ok());
  ASSERT_TRUE(t.Ids(1, 7).ok());
  t.Run();
  t.Run();
  t.Run();
  const auto log = t.Take();
  EXPECT_EQ(Log(log.end() - 3, log.end()),
            (Log{"down: prefill 0+3 end b1", "down: prefill 3+3 end b1", "down: prefill 6+1 end b1"}));
}

TEST(HeadLane, AloneItFeedsItself) {
  Head t(1);
  ASSERT_TRUE(t.Turn(1, 0, 4, 0, 2).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  t.Run(42);
  t.Run(43);
  EXPECT_EQ(t.last_input, 42);
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=42 b1", "up: loop 5=43 finish 2 b1"}));
  ASSERT_TRUE(t.Turn(2, 5, 4, 0, 2).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 5 finish 4 b2"}));
  ASSERT_TRUE(t.Ids(2, 4).ok());  // they were under way
  EXPECT_FALSE(t.lane->Ready());
}

}  // namespace
}  // namespace meshnet
