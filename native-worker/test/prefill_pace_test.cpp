// PrefillPace alone, and asked by the head's scheduler.
#include "prefill_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bounds.h"
#include "scheduler.h"

namespace meshnet {
namespace {

constexpr uint32_t kMaxRows = 256;

PaceLoad Load(uint32_t n_stages, uint32_t lanes = 4, uint32_t prompts = 1) {
  return {.n_stages = n_stages, .lanes = lanes, .prompts = prompts};
}

TEST(PrefillPace, GivesPrefillASomewhatLargerShareThanDecoding) {
  PrefillPace pace;
  pace.Ran(0, 200, 20'000);
  pace.Ran(4, 0, 10'000);
  // 12.5 ms of rows that cost 0.1 ms, and decoding and prefill together in fours.
  EXPECT_EQ(pace.Rows(4, Load(1), kMaxRows), 124U);
  EXPECT_EQ(pace.Rows(4, Load(1), 60), 60U);
}

TEST(PrefillPace, KeepsToTheTickTargetAsFarAsPromptsAllow) {
  PrefillPace pace;
  pace.Ran(0, 200, 200'000);
  pace.Ran(4, 0, 24'000);
  EXPECT_EQ(pace.Rows(4, Load(1), kMaxRows), 24U);  // not the 30 of the share
  PrefillPace slow;
  slow.Ran(0, 200, 200'000);
  slow.Ran(4, 0, 60'000);
  EXPECT_EQ(slow.Rows(4, Load(1), kMaxRows), 60U);  // a prompt is no more than twice as slow
}

TEST(PrefillPace, MeasuresATickOfDecodingBeforeItAddsToIt) {
  PrefillPace pace;
  EXPECT_EQ(pace.Rows(0, Load(1), kMaxRows), kFirstRows);
  EXPECT_EQ(pace.Rows(3, Load(1), kMaxRows), 0U);
  pace.Ran(3, 0, 10'000);
  EXPECT_GT(pace.Rows(3, Load(1), kMaxRows), 0U);
  EXPECT_EQ(pace.Rows(4, Load(1), kMaxRows), 0U);
  for (uint64_t i = 0; i < kBelievedTicks; i++) pace.Ran(3, 16, 20'000);
  EXPECT_EQ(pace.Rows(3, Load(1), kMaxRows), 0U);
  pace.Ran(3, 0, 10'000);
  EXPECT_GT(pace.Rows(3, Load(1), kMaxRows), 0U);
}

TEST(PrefillPace, TakesBackWhatWasTooMuchAtOnceAndGivesMoreSlowly) {
  PrefillPace pace;
  pace.Ran(0, 100, 10'000);
  pace.Ran(4, 0, 10'000);
  const uint32_t before = pace.Rows(4, Load(1), kMaxRows);
  pace.Ran(4, 100, 50'000);  // 0.4 ms a row
  const uint32_t after = pace.Rows(4, Load(1), kMaxRows);
  EXPECT_LE(after, before / 2);
  pace.Ran(4, after, 10'000);  // nothing at all
  const uint32_t later = pace.Rows(4, Load(1), kMaxRows);
  EXPECT_GT(later, after);
  EXPECT_LE(later, after * 5 / 4);
}

// A head whose prompts cost 3 ms a row and 10 ms a tick, and steps of decoding 15 ms.
PrefillPace Measured() {
  PrefillPace pace;
  for (uint32_t rows = 4; rows <= 32; rows += 4) pace.Ran(0, rows, 10'000 + 3'000 * rows);
  pace.Ran(4, 0, 15'000, 4);
  return pace;
}

TEST(PrefillPace, GivesAPromptOneTickBetweenTwoTokensOfARing) {
  PrefillPace pace = Measured();
  EXPECT_GT(pace.OwnRowsDue(Load(2), kMaxRows), 0U);
  const uint32_t rows = pace.Rows(0, Load(2), kMaxRows);
  EXPECT_GE(rows, 8U);
  EXPECT_LE(rows, 16U);
  pace.Ran(0, rows, 10'000 + 3'000 * rows, 4);
  EXPECT_EQ(pace.OwnRowsDue(Load(2), kMaxRows), 0U);
  EXPECT_EQ(pace.Rows(0, Load(2), kMaxRows), 0U);
  pace.Ran(2, 0, 15'000, 4);  // two of four had their token
  EXPECT_EQ(pace.OwnRowsDue(Load(2), kMaxRows), 0U);
  pace.Ran(2, 0, 15'000, 4);
  EXPECT_GT(pace.OwnRowsDue(Load(2), kMaxRows), 0U);
  EXPECT_EQ(pace.Rows(0, Load(2), kMaxRows), rows);
  EXPECT_EQ(pace.OwnRowsDue(Load(1), kMaxRows), 0U);  // with one stage they share their ticks
}

TEST(PrefillPace, GivesMorePromptsThanDecodersMoreOfTheTime) {
  PrefillPace pace = Measured();
  PaceLoad crowd = Load(2, 1);
  const uint32_t rows = pace.Rows(0, crowd, kMaxRows);
  crowd.prompts = 7;
  EXPECT_GT(pace.Rows(0, crowd, kMaxRows), rows);
}

TEST(PrefillPace, SharesTicksOnlyWhereMostWaitForTheirFirstToken) {
  PrefillPace pace = Measured();
  PaceLoad load = Load(2);
  EXPECT_EQ(pace.Rows(4, load, kMaxRows), 0U);
  load.prompts = 5;
  EXPECT_GT(pace.Rows(4, load, kMaxRows), 0U);
  EXPECT_EQ(pace.OwnRowsDue(load, kMaxRows), 0U);
}

TEST(PrefillPace, UsesTheTimeForWhichDecodersAreAway) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 0);
  pace.Returned(1, 185'000, 15'000);  // 200 ms a token, 15 of them at each stage
  uint32_t ticks = 0;
  for (; pace.Rows(0, Load(2), kMaxRows) > 0; ticks++) {
    ASSERT_LT(ticks, 14U);
    pace.Ran(0, 8, 34'000, 4);
  }
  EXPECT_GE(ticks, 2U);
}

TEST(PrefillPace, KeepsTicksApartWhereAShortLapWouldMakeTheNextOneLong) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 0);
  pace.Returned(1, 55'000, 15'000);  // 70 ms a token
  const uint64_t start = 1'000'000;
  pace.Ran(0, 16, 58'000, 4);
  pace.Sent(2, true, start + 58'000);
  pace.Ran(4, 0, 15'000, 4);
  pace.Sent(3, false, start + 80'000);
  PaceLoad load = Load(2);
  const uint64_t from = pace.OwnFrom(load, kMaxRows);
  EXPECT_GE(from, start + 80'000);
  EXPECT_LE(from, start + 70'000 / 2 + 106'000);  // of 32 rows at most
  load.now_us = from - 1;
  EXPECT_EQ(pace.OwnRowsDue(load, kMaxRows), 0U);
  EXPECT_EQ(pace.Rows(0, load, kMaxRows), 0U);
  load.now_us = from;
  EXPECT_GT(pace.OwnRowsDue(load, kMaxRows), 0U);
  EXPECT_GT(pace.Rows(0, load, kMaxRows), 0U);
}

// Tokens of four decoders, so many and so far apart, behind those before.
void Decode(PrefillPace & pace, uint64_t & now_us, int laps, uint64_t lap_us, uint32_t lanes = 4) {
  static uint64_t group = 1000;
  for (int i = 0; i < laps; i++) {
    pace.Ran(lanes, 0, 15'000, lanes);
    pace.Sent(group++, false, now_us += lap_us);
  }
}

// Whose trips took so long once that tokens should take 200 ms.
PrefillPace Late() {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 1);
  pace.Returned(1, 185'000, 15'000);
  return pace;
}

// Whose tokens took 30 ms, half of it away.
PrefillPace Timed(uint64_t & now_us) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 1);
  pace.Returned(1, 15'000, 15'000);
  Decode(pace, now_us, 20, 30'000);
  return pace;
}

TEST(PrefillPace, GoesByTheTimeThatTokensTookUndisturbed) {
  PrefillPace pace = Late();
  uint64_t now = 1'000'000;
  ASSERT_GE(pace.Rows(0, Load(2), kMaxRows), 16U);
  Decode(pace, now, 20, 30'000);
  EXPECT_LE(pace.Rows(0, Load(2), kMaxRows), 8U);
  EXPECT_GT(pace.Rows(0, Load(2), kMaxRows), 0U);
}

TEST(PrefillPace, TimesNoTokensBesidePromptsOrOfOtherDecoders) {
  PrefillPace pace = Late();
  uint64_t now = 1'000'000;
  const uint32_t rows = pace.Rows(0, Load(2), kMaxRows);
  for (int i = 0; i < 10; i++) {
    Decode(pace, now, 4, 30'000);
    pace.Ran(0, 16, 58'000, 4);
    pace.Sent(10'000 + i, true, now += 58'000);
    pace.Returned(10'000 + i, 58'000, 58'000);
  }
  for (int i = 0; i < 10; i++) {
    Decode(pace, now, 4, 30'000);
    Decode(pace, now, 4, 30'000, 3);
  }
  pace.Ran(4, 0, 15'000, 4);
  EXPECT_EQ(pace.Rows(0, Load(2), kMaxRows), rows);
}

TEST(PrefillPace, PlansForTokensAsTheyAreWhenSomeCameLate) {
  uint64_t now = 1'000'000;
  PrefillPace pace = Timed(now);
  const uint32_t rows = pace.Rows(0, Load(2), kMaxRows);
  Decode(pace, now, 3, 7'000'000);
  EXPECT_LE(pace.Rows(0, Load(2), kMaxRows), 2 * rows);
}

TEST(PrefillPace, FollowsAWayThatBecameLongerSinceTokensWereTimed) {
  uint64_t now = 1'000'000;
  PrefillPace pace = Timed(now);
  ASSERT_EQ(pace.Rows(0, Load(2, 3), kMaxRows) > 0, true);
  for (uint64_t i = 0; i < 40; i++) {
    pace.Sent(50'000 + i, false, now);
    pace.Returned(50'000 + i, 185'000, 15'000);
  }
  uint32_t ticks = 0;
  for (; pace.Rows(0, Load(2), kMaxRows) > 0; ticks++) {
    ASSERT_LT(ticks, 14U);
    pace.Ran(0, 8, 34'000, 4);
  }
  EXPECT_GE(ticks, 2U);  // stages have the time
}

TEST(PrefillPace, MeasuresNowAndThenWhatAPromptTakesAlone) {
  PrefillPace pace;
  for (uint32_t rows = 4; rows <= 16; rows += 4) pace.Ran(0, rows, 5'000 * rows);  // small ticks cost no more a row
  uint32_t large = 0;
  uint32_t usual = 0;
  for (uint64_t lap = 0; lap < 4 * kAloneTicks; lap++) {
    pace.Ran(4, 0, 15'000, 4);
    const uint32_t rows = pace.OwnRowsDue(Load(2), kMaxRows);
    ASSERT_GT(rows, 0U);
    if (rows >= kAloneRows) {
      large++;
    } else if (lap > kAloneTicks) {
      EXPECT_EQ(rows, usual);  // no other one than before
    } else {
      usual = rows;
    }
    pace.Ran(0, std::min(rows, 12U), 5'000 * std::min(rows, 12U), 4);  // the rest of a prompt counts for it
  }
  EXPECT_GE(large, 3U);
  EXPECT_LE(large, 4U);
}

TEST(PrefillPace, MeasuresWhatAPromptTakesAloneWithTheRowsItWouldHave) {
  const auto cost = [](uint32_t rows) { return 1'000 + 960UL * rows; };
  PrefillPace pace;
  for (uint32_t rows = 8; rows <= 40; rows += 8) pace.Ran(0, rows, cost(rows));
  uint32_t largest = 0;
  for (uint64_t lap = 0; lap < 2 * kAloneTicks; lap++) {
    pace.Ran(4, 0, 3'000, 4);
    const uint32_t rows = pace.OwnRowsDue(Load(2), kMaxRows);
    ASSERT_GT(rows, 0U);
    pace.Ran(0, rows, cost(rows), 4);
    largest = std::max(largest, rows);
  }
  EXPECT_GE(largest, pace.AloneRows());
}

TEST(PrefillPace, GuessesNoTickOfManyTimesTheRowsThatWereTried) {
  PrefillPace pace;
  pace.Ran(0, 8, 20'000);
  pace.Ran(0, 12, 20'100);  // as if more rows cost hardly anything
  pace.Ran(4, 0, 15'000, 4);
  EXPECT_GT(pace.OwnRowsDue(Load(2), kMaxRows), 12U);
  EXPECT_LE(pace.OwnRowsDue(Load(2), kMaxRows), 24U);
}

TEST(PrefillPace, LearnsTheWayOnlyFromTripsWithoutPrefill) {
  PrefillPace pace;
  pace.Ran(1, 0, 10'000);
  pace.Sent(1, true, 0);
  pace.Sent(2, false, 0);
  pace.Returned(1, 900'000, 10'000);
  pace.Returned(2, 900'000, 10'000);  // left while the first was on its way
  EXPECT_EQ(pace.LostAt(5), kLostUs + 5);
  pace.Sent(3, false, 0);
  pace.Returned(3, 900'000, 10'000);
  EXPECT_EQ(pace.LostAt(5), 3'600'005U);
}

TEST(PrefillPace, BelievesNoStageThatClaimsToNeedNoTime) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 0);
  for (int i = 0; i < 40; i++) pace.Returned(1, 1'000'000'000, 1);  // nor that its way is a quarter of an hour long
  uint32_t ticks = 0;
  for (; pace.Rows(0, Load(2), kMaxRows) > 0; ticks++) {
    ASSERT_LE(ticks, kMaxPrefillGroups);
    pace.Ran(0, 16, 58'000, 4);
  }
}

TEST(PrefillPace, PlansForTheWayThatOthersHaveWhenOneIsLate) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 0);
  for (int i = 0; i < 20; i++) pace.Returned(1, 20'000, 15'000);
  const uint32_t rows = pace.Rows(0, Load(2), kMaxRows);
  pace.Returned(1, 30'000'000, 15'000);
  EXPECT_LE(pace.Rows(0, Load(2), kMaxRows), rows + kKernelRows);
  pace.Ran(0, rows, 10'000 + 3'000 * rows, 4);
  EXPECT_EQ(pace.Rows(0, Load(2), kMaxRows), 0U);  // and still no more of them
  // Beside prompts a way that has become shorter is seen too.
  for (int i = 0; i < 20; i++) pace.Returned(2, 400'000, 15'000);
  const uint64_t before = pace.LostAt(0);
  pace.Sent(3, true, 0);
  for (int i = 0; i < 20; i++) pace.Returned(2, 20'000, 15'000);
  EXPECT_LT(pace.LostAt(0), before);
}

TEST(PrefillPace, ALateDecoderHoldsUpPromptsForAWhileOnly) {
  PrefillPace pace = Measured();
  pace.Sent(1, false, 0);
  pace.Returned(1, 20'000'000, 4'000'000'000);  // late, and its last stage lies about why
  EXPECT_EQ(pace.ForgetAt(), UINT64_MAX);
  uint64_t group = 2;
  while (pace.Rows(0, Load(2), kMaxRows) > 0) {
    pace.Ran(0, 16, 58'000, 4);
    pace.Sent(group++, true, 7);
  }
  EXPECT_EQ(pace.ForgetAt(), kLostUs + 7);
  pace.Forget(kLostUs + 6);
  EXPECT_EQ(pace.Rows(0, Load(2), kMaxRows), 0U);
  pace.Forget(kLostUs + 7);
  EXPECT_EQ(pace.ForgetAt(), UINT64_MAX);
  EXPECT_GT(pace.Rows(0, Load(2), kMaxRows), 0U);
  EXPECT_GT(pace.OwnRowsDue(Load(2), kMaxRows), 0U);
  pace.Ran(0, 16, 500'000, 4);
  pace.Sent(group, true, 9);  // takes as long at other stages too
  EXPECT_EQ(pace.ForgetAt(), kLostTicks * 500'000 + 9);
}

// Half a 1.1B model with matrix tiles: from the second row of a tick on they cost as much as for a dozen.
uint64_t TileCostUs(uint32_t rows) { return rows == 1 ? 26'000 : 58'000 + 3'000 * uint64_t{rows}; }

TEST(PrefillPace, StarvesNoPromptWhereFewRowsCostAsMuchAsMany) {
  PrefillPace pace;
  pace.Ran(0, 64, 300'000);
  uint64_t rows = 0;
  uint64_t us = 0;
  for (int tick = 0; tick < 200; tick++) {
    const uint32_t prefill = pace.Rows(1, Load(1), kMaxRows);
    const uint64_t took = TileCostUs(1 + prefill);
    pace.Ran(1, prefill, took);
    rows += prefill;
    us += took;
  }
  // Half as fast as alone.
  EXPECT_GT(static_cast<double>(rows) / static_cast<double>(us), 0.5 * 64 / 300'000);
  // And decoders do not pay for more than that.
  EXPECT_LT(us / 200, 95'000U);
}

TEST(PrefillPace, TakesNoSmallTickForWhatARowCostsAlone) {
  PrefillPace pace;
  pace.Ran(0, 16, 42'000);
  pace.Ran(2, 0, 20'000);
  pace.Ran(2, 6, 46'000);
  const uint32_t before = pace.Rows(2, Load(1), kMaxRows);
  for (int i = 0; i < 20; i++) pace.Ran(0, 8, 40'000);
  pace.Ran(2, 6, 46'000);
  EXPECT_GE(pace.Rows(2, Load(1), kMaxRows), before);
}

TEST(PrefillPace, CutsAPromptByTimeEvenWhenNobodyDecodes) {
  PrefillPace pace;
  EXPECT_EQ(pace.AloneRows(), kAloneRows);
  pace.Ran(0, 64, 32'000);
  EXPECT_EQ(pace.AloneRows(), 80U);
  PrefillPace slow;
  slow.Ran(0, 64, 640'000);
  EXPECT_EQ(slow.AloneRows(), kAloneRows);  // fewer would mostly wait for weights
  PrefillPace fast;
  fast.Ran(0, 64, 64);
  EXPECT_EQ(fast.AloneRows(), kMaxFrameTokens);
}

TEST(ScheduleHead, HoldsPrefillBackForAGroupThatIsAboutToBeWhole) {
  PrefillPace pace;
  pace.Ran(0, 16, 40'000, 2);
  RingLoad load{.lanes = 2, .shares = 1, .n_stages = 2, .prompts = 1, .alive = 2};
  load.pace = &pace;
  const Candidate decode{.lane = 0, .decode = true, .rows = 1, .group = {7, 2}, .since_us = 100};
  const std::vector<Candidate> all = {decode, {.lane = 1, .rows = 40, .since_us = 50}};
  const auto schedule = ScheduleHead(all, load, {}, kMaxRows, 200, 1000);
  EXPECT_TRUE(schedule.picks.empty());
  EXPECT_EQ(schedule.wake_us, 1100U);
}

// A tick of 16 rows while decoders are held.
void Hold(PrefillPace & pace, uint32_t lanes) {
  pace.Ran(0, 16, 58'000, lanes);
  pace.Held(true, 58'000);
}

TEST(PrefillPace, HoldsDecodersForACrowdThatIsSoonThrough) {
  PrefillPace pace = Measured();
  PaceLoad load = Load(2, 3, 3);
  EXPECT_FALSE(pace.Holds(load, 100));  // no crowd
  load.prompts = 4;
  EXPECT_TRUE(pace.Holds(load, 100));
  EXPECT_FALSE(pace.Holds(load, 0));
  EXPECT_FALSE(pace.Holds(load, 400));     // not soon
  EXPECT_FALSE(pace.Holds(Load(1), 100));  // one stage computes both at once
  // It goes on until they are through, though fewer wait by then than decode.
  Hold(pace, 3);
  load.prompts = 1;
  EXPECT_TRUE(pace.Holds(load, 16));
  pace.Ran(3, 0, 15'000, 3);
  pace.Held(false, 15'000);
  EXPECT_FALSE(pace.Holds(load, 16));
}

TEST(PrefillPace, HoldsDecodersForASecondAndOnceInManyTokens) {
  PrefillPace pace = Measured();
  const PaceLoad load = Load(2, 1, 7);
  uint32_t n_late = 0;
  uint32_t n_tokens = 0;
  for (uint32_t i = 0; i < 20 * static_cast<uint32_t>(kHoldLaps); i++) {
    uint64_t held_us = 0;
    for (; pace.Holds(load, 16); held_us += 58'000) Hold(pace, 1);  // prompts that never end
    EXPECT_LE(held_us, kHoldUs);
    EXPECT_TRUE(held_us == 0 || held_us > kHoldUs - 2 * 58'000);
    n_late += held_us > 0 ? 1 : 0;
    pace.Ran(1, 0, 15'000, 1);
    pace.Held(false, 15'000);
    n_tokens++;
  }
  EXPECT_EQ(n_late, 20U);
  EXPECT_LE(20 * n_late, n_tokens);  // so that 95 of 100 tokens are not
}

TEST(PrefillPace, CountsTicksThatFailedForHowLongDecodersAreHeld) {
  PrefillPace pace = Measured();
  const PaceLoad load = Load(2, 1, 7);
  uint64_t held_us = 0;
  for (; pace.Holds(load, 16); held_us += 50'000) {
    ASSERT_LE(held_us, kHoldUs);
    pace.Held(true, 50'000);
  }
  pace.Held(false, 1'000);
  EXPECT_FALSE(pace.Holds(load, 16));
}

TEST(PrefillPace, CountsTheSlowestStageForHowSoonACrowdIsThrough) {
  PrefillPace pace = Measured();
  const PaceLoad load = Load(2, 3, 4);
  pace.Sent(1, false, 0);
  for (int i = 0; i < 20; i++) pace.Returned(1, 200'000, 60'000);  // four times as slow
  EXPECT_TRUE(pace.Holds(load, 64));
  EXPECT_FALSE(pace.Holds(load, 100));
  uint64_t held_us = 0;
  for (; pace.Holds(load, 16); held_us += 58'000) Hold(pace, 3);
  EXPECT_LE(held_us, kHoldUs / 3);
}

TEST(ScheduleHead, LetsACrowdOfPromptsGoFirst) {
  PrefillPace pace;
  for (int i = 0; i < 3; i++) pace.Ran(0, 16, 40'000, 1);
  pace.Ran(1, 0, 10'000, 1);
  RingLoad load{.lanes = 1, .shares = 0.5, .n_stages = 2, .prompts = 2, .prompt_rows = 40, .alive = 1};
  load.alone_rows = 24;
  std::vector<Candidate> all = {{.lane = 0, .decode = true, .rows = 1, .since_us = 1},
                                {.lane = 1, .rows = 20, .since_us = 2},
                                {.lane = 2, .rows = 20, .since_us = 3}};
  EXPECT_FALSE(ScheduleHead(all, load, {}, kMaxRows, 5, 1000).held);  // nobody waits for tokens
  load.pace = &pace;
  const auto schedule = ScheduleHead(all, load, {}, kMaxRows, 5, 1000);
  EXPECT_TRUE(schedule.held);
  ASSERT_EQ(schedule.picks.size(), 2U);
  EXPECT_EQ(schedule.picks[0].lane, 1U);
  EXPECT_EQ(schedule.picks[0].rows, 20U);
  EXPECT_EQ(schedule.picks[1].rows, 4U);
  // Not for prompts of which only the beginning would be soon through.
  load.prompt_rows = 4000;
  EXPECT_FALSE(ScheduleHead(all, load, {}, kMaxRows, 5, 1000).held);
  // Nor while none can go.
  load.prompt_rows = 40;
  load.prompts = 0;
  for (size_t i = 1; i < all.size(); i++) all[i].blocked = true;
  const auto blocked = ScheduleHead(all, load, {}, kMaxRows, 5, 1000);
  EXPECT_FALSE(blocked.held);
  ASSERT_EQ(blocked.picks.size(), 1U);
  EXPECT_EQ(blocked.picks[0].lane, 0U);
}

}  // namespace
}  // namespace meshnet
