#include "scheduler.h"

#include <gtest/gtest.h>

#include "prefill_pace.h"

namespace meshnet {
namespace {

Candidate Decode(size_t lane, GroupKey group, uint64_t since_us = 100) {
  return {.lane = lane, .decode = true, .rows = 1, .group = group, .since_us = since_us};
}

Candidate Prefill(size_t lane, uint32_t rows, uint64_t since_us = 100, GroupKey group = {}) {
  return {.lane = lane, .rows = rows, .group = group, .since_us = since_us};
}

std::vector<size_t> Lanes(const Schedule & schedule) {
  std::vector<size_t> lanes;
  for (const Pick & pick : schedule.picks) lanes.push_back(pick.lane);
  return lanes;
}

RingLoad Load(uint32_t lanes, uint32_t n_stages) {
  return {.lanes = lanes, .shares = static_cast<double>(lanes) / n_stages, .n_stages = n_stages, .alive = lanes};
}

TEST(DecodeCap, LeavesAGroupForEveryStage) {
  EXPECT_EQ(DecodeCap(Load(1, 2)), 1U);
  EXPECT_EQ(DecodeCap(Load(2, 2)), 1U);
  EXPECT_EQ(DecodeCap(Load(4, 2)), 2U);
  EXPECT_EQ(DecodeCap(Load(5, 2)), 4U);
  EXPECT_EQ(DecodeCap(Load(8, 2)), 4U);
  EXPECT_EQ(DecodeCap(Load(12, 2)), 8U);
  EXPECT_EQ(DecodeCap(Load(9, 3)), 4U);
  EXPECT_EQ(DecodeCap(Load(6, 1)), 6U);
}

TEST(DecodeCap, CountsPromptsAsAGroup) {
  RingLoad load = Load(3, 2);
  EXPECT_EQ(DecodeCap(load), 2U);
  load.prompts = 1;
  EXPECT_EQ(DecodeCap(load), 4U);
  load = Load(3, 3);
  load.prompts = 1;
  EXPECT_EQ(DecodeCap(load), 1U);
}

TEST(ScheduleHead, TakesTheLanesThatWaitedLongest) {
  const std::vector<Candidate> all = {Decode(0, {}, 50), Decode(1, {}, 10), Decode(2, {}, 40), Decode(3, {}, 20)};
  EXPECT_EQ(Lanes(ScheduleHead(all, Load(4, 2), {}, 64, 100, 1000)), (std::vector<size_t>{1, 3}));
}

TEST(ScheduleHead, FillsTheTickWithPrefill) {
  const std::vector<Candidate> all = {Prefill(0, 100, 9), Decode(1, {}), Prefill(2, 40, 5)};
  const auto picks = ScheduleHead(all, Load(1, 2), {}, 64, 100, 1000).picks;
  ASSERT_EQ(picks.size(), 3U);
  EXPECT_EQ(picks[0].rows, 23U);
  EXPECT_EQ(picks[1].rows, 1U);
  EXPECT_EQ(picks[2].rows, 40U);
}

TEST(ScheduleHead, WaitsForAGroupThatComesBack) {
  const GroupKey group{7, 3};
  std::vector<Candidate> all = {Decode(0, group), Decode(1, group)};
  auto schedule = ScheduleHead(all, Load(6, 2), {}, 64, 200, 1000);
  EXPECT_TRUE(schedule.picks.empty());
  EXPECT_EQ(schedule.wake_us, 1100U);
  EXPECT_EQ(ScheduleHead(all, Load(6, 2), {}, 64, 1100, 1000).picks.size(), 2U);
  GroupBook book;
  book.Settle(group);  // the third has finished its turn
  EXPECT_EQ(ScheduleHead(all, Load(6, 2), book, 64, 200, 1000).picks.size(), 2U);
  all.push_back(Decode(2, group));
  EXPECT_EQ(ScheduleHead(all, Load(6, 2), {}, 64, 200, 1000).picks.size(), 3U);
}

TEST(ScheduleHead, GrowsGroupsThatHaveComeApart) {
  RingLoad load = Load(8, 2);
  load.step_us = 400;
  std::vector<Candidate> all = {Decode(0, {}), Decode(1, {}, 150)};
  const auto picks = [&](uint64_t now_us) { return ScheduleHead(all, load, {}, 64, now_us, 1000).picks.size(); };
  load.away = 6;
  EXPECT_EQ(picks(200), 0U);
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 200, 1000).wake_us, 900U);
  EXPECT_EQ(picks(900), 2U);  // two ticks after the first of them: whoever is still away is slow
  load.away = 1;
  EXPECT_EQ(picks(200), 2U);  // another stage would soon stand still
  load.away = 6;
  all.push_back(Prefill(4, 40, 5));
  EXPECT_EQ(Lanes(ScheduleHead(all, load, {}, 64, 200, 1000)), (std::vector<size_t>{4}));
  all = {Decode(0, {}), Decode(1, {}), Decode(2, {}), Decode(3, {})};
  EXPECT_EQ(picks(200), 4U);
}

TEST(ScheduleHead, NeverWaitsForMoreLanesThanThereAre) {
  RingLoad load = Load(2, 2);
  load.step_us = 400;
  load.away = 2;
  const std::vector<Candidate> one = {Decode(0, {})};
  EXPECT_EQ(ScheduleHead(one, load, {}, 64, 200, 1000).picks.size(), 1U);
}

TEST(ScheduleHead, TakesNoMoreThanTheMeasuredCap) {
  RingLoad load = Load(32, 2);
  std::vector<Candidate> all;
  for (size_t i = 0; i < 32; i++) all.push_back(Decode(i, {}, i));
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 100, 1000).picks.size(), 16U);
  load.cap = 8;
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 100, 1000).picks.size(), 8U);
  load.cap = 32;
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 100, 1000).picks.size(), 16U);
}

TEST(ScheduleHead, LeavesAPromptRoomBesideDecodersThatWouldFillTheTick) {
  PrefillPace pace;
  pace.Ran(0, 100, 10'000);
  for (uint32_t rows = 1; rows <= 16; rows++) pace.Ran(rows, 0, 10'000);
  RingLoad load = Load(16, 1);
  load.pace = &pace;
  std::vector<Candidate> all;
  for (size_t i = 0; i < 16; i++) all.push_back(Decode(i, {}, i));
  EXPECT_EQ(ScheduleHead(all, load, {}, 16, 100, 1000).picks.size(), 16U);
  all.push_back(Prefill(16, 100));
  const auto picks = ScheduleHead(all, load, {}, 16, 100, 1000).picks;
  ASSERT_EQ(picks.size(), 13U);
  EXPECT_EQ(picks.back().lane, 16U);
  EXPECT_EQ(picks.back().rows, 4U);
}

TEST(ScheduleHead, GivesAPromptOneTickOfItsOwnForEachTokenOfTheRing) {
  // As few rows as a worker can be told to compute at once, too.
  for (const uint32_t max_rows : {1U, 4U, 8U, 64U}) {
    for (const uint32_t n_stages : {2U, 3U, 5U}) {
      PrefillPace pace;
      pace.Ran(0, 16, 11'400);
      pace.Ran(4, 0, 5'000, 4);
      RingLoad load = Load(4, n_stages);
      load.pace = &pace;
      load.prompts = 1;
      const std::vector<Candidate> all = {Decode(0, {}, 1), Decode(1, {}, 2), Decode(2, {}, 3), Decode(3, {}, 4),
                                          Prefill(4, 10'000)};
      uint32_t own = 0;
      uint32_t decoded = 0;
      while (decoded < 40) {
        const auto picks = ScheduleHead(all, load, {}, max_rows, 100'000'000, 1000).picks;
        ASSERT_FALSE(picks.empty());
        const bool prefill = picks.back().lane == 4;
        EXPECT_TRUE(!prefill || picks.size() == 1);
        const uint32_t rows = prefill ? picks.back().rows : 0;
        const auto n = static_cast<uint32_t>(picks.size()) - (prefill ? 1 : 0);
        pace.Ran(n, rows, prefill ? 5'000 + 400 * rows : 5'000, 4);
        decoded += n;
        own += prefill ? 1 : 0;
      }
      EXPECT_GE(own, 10U) << max_rows << " rows, " << n_stages << " stages";
    }
  }
}

TEST(ScheduleHead, MixesPromptsAndDecodersWhereMostWaitForTheirFirstToken) {
  PrefillPace pace;
  pace.Ran(0, 16, 11'400);
  pace.Ran(1, 0, 5'000, 1);
  RingLoad load = Load(1, 2);
  load.pace = &pace;
  load.prompts = 3;
  const std::vector<Candidate> all = {Decode(0, {}, 1), Prefill(1, 4), Prefill(2, 4), Prefill(3, 4)};
  load.prompt_rows = 4000;  // not soon through
  EXPECT_EQ(Lanes(ScheduleHead(all, load, {}, 64, 100'000'000, 1000)), (std::vector<size_t>{0, 1, 2, 3}));
}

TEST(ScheduleHead, WakesWhenAPromptsNextTickIsDue) {
  PrefillPace pace;
  for (uint32_t rows = 4; rows <= 32; rows += 4) pace.Ran(0, rows, 10'000 + 3'000 * rows);
  pace.Ran(4, 0, 15'000, 4);
  pace.Sent(1, false, 0);
  pace.Returned(1, 55'000, 15'000);
  pace.Ran(0, 16, 58'000, 4);
  pace.Sent(2, true, 1'058'000);
  pace.Ran(4, 0, 15'000, 4);
  pace.Sent(3, false, 1'073'000);
  RingLoad load = Load(4, 2);
  load.pace = &pace;
  load.prompts = 1;
  load.away = 1;
  const std::vector<Candidate> all = {Prefill(0, 400)};
  const Schedule early = ScheduleHead(all, load, {}, 64, 1'073'000, 1000);
  EXPECT_TRUE(early.picks.empty());
  ASSERT_NE(early.wake_us, UINT64_MAX);
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, early.wake_us, 1000).picks.size(), 1U);
}

TEST(ScheduleHead, GathersDecodersWhileAPromptKeepsAStageBusy) {
  PrefillPace pace;
  pace.Ran(0, 16, 11'400, 2);
  RingLoad load = Load(2, 2);
  load.pace = &pace;
  load.away = 1;
  load.step_us = 5'000;
  const std::vector<Candidate> alone = {Decode(0, {}, 100)};
  EXPECT_EQ(Lanes(ScheduleHead(alone, load, {}, 64, 200, 1000)), (std::vector<size_t>{0}));
  load.prompts = 1;
  const std::vector<Candidate> beside = {Decode(0, {}, 100), Prefill(1, 40)};
  const Schedule schedule = ScheduleHead(beside, load, {}, 64, 200, 1000);
  EXPECT_TRUE(schedule.picks.empty());
  EXPECT_EQ(schedule.wake_us, 10'100U);
}

TEST(ScheduleHead, IsFairBetweenClientsThenBetweenSessions) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < 7; i++) all.push_back(Decode(i, {}, 10 + i));
  all.push_back(Decode(7, {}, 90));
  all.back().client = 1;
  EXPECT_EQ(Lanes(ScheduleHead(all, Load(8, 2), {}, 64, 100, 1000)), (std::vector<size_t>{0, 1, 2, 7}));

  all = {Prefill(0, 100, 5), Prefill(1, 100, 6), Prefill(2, 100, 50)};
  all[0].client_ran_us = all[1].client_ran_us = 80;
  all[2].client = 1;
  EXPECT_EQ(Lanes(ScheduleHead(all, Load(0, 1), {}, 64, 100, 1000)), (std::vector<size_t>{2}));
  all[2].client_ran_us = 90;
  EXPECT_EQ(Lanes(ScheduleHead(all, Load(0, 1), {}, 64, 100, 1000)), (std::vector<size_t>{0}));
}

TEST(ScheduleHead, LimitsPromptsThatNobodyWaitsBehind) {
  RingLoad load = Load(0, 1);
  load.alone_rows = 40;
  const std::vector<Candidate> all = {Prefill(0, 30, 5), Prefill(1, 30, 6)};
  const auto picks = ScheduleHead(all, load, {}, 64, 100, 1000).picks;
  ASSERT_EQ(picks.size(), 2U);
  EXPECT_EQ(picks[0].rows + picks[1].rows, 40U);
}

TEST(ScheduleHead, HoldsPrefillBackWhileTokensAreDrawnBesideTheOnlyStage) {
  PrefillPace pace;
  pace.Ran(0, 100, 10'000);
  pace.Ran(1, 0, 10'000);
  RingLoad load = Load(2, 1);
  load.pace = &pace;
  load.away = 1;
  load.step_us = 20;
  load.back_us = 150;
  std::vector<Candidate> all = {Prefill(0, 30)};
  auto schedule = ScheduleHead(all, load, {}, 64, 149, 1000);
  EXPECT_TRUE(schedule.picks.empty());
  EXPECT_EQ(schedule.wake_us, 150U);
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 150, 1000).picks.size(), 1U);
  all.push_back(Decode(1, {}, 100));
  EXPECT_EQ(ScheduleHead(all, load, {}, 64, 149, 1000).picks.size(), 2U);
}

TEST(ScheduleLater, RunsOneGroupWholeAndNeverMergesTwo) {
  const GroupKey a{1, 2};
  const GroupKey b{2, 2};
  const std::vector<Candidate> all = {Decode(0, b, 90), Decode(1, a, 80), Decode(2, b, 70), Decode(3, a, 85)};
  EXPECT_EQ(Lanes(ScheduleLater(all, {}, 64, 100, 1000)), (std::vector<size_t>{0, 2}));
}

TEST(ScheduleLater, WaitsForMissingLanesNoLongerThanTheLimit) {
  const std::vector<Candidate> all = {Decode(0, {1, 3}), Prefill(1, 30, 300, {1, 3})};
  auto schedule = ScheduleLater(all, {}, 64, 400, 1000);
  EXPECT_TRUE(schedule.picks.empty());
  EXPECT_EQ(schedule.wake_us, 1100U);
  EXPECT_EQ(ScheduleLater(all, {}, 64, 1100, 1000).picks.size(), 2U);
}

TEST(ScheduleLater, WaitsForNobodyWhoIsSettledOrBlocked) {
  GroupBook book;
  book.Settle({1, 3});
  std::vector<Candidate> all = {Decode(0, {1, 3}), Prefill(1, 30, 100, {1, 3})};
  all[1].blocked = true;
  EXPECT_EQ(Lanes(ScheduleLater(all, book, 64, 100, 1000)), (std::vector<size_t>{0}));
  all.erase(all.begin());
  EXPECT_TRUE(ScheduleLater(all, book, 64, 100, 1000).picks.empty());
}

TEST(ScheduleLater, LeavesOutUnitsThatAreNotWhole) {
  std::vector<Candidate> all = {Decode(0, {1, 2}), Prefill(1, 30, 100, {1, 2})};
  all[1].complete = false;
  EXPECT_TRUE(ScheduleLater(all, {}, 64, 100, 1000).picks.empty());
  EXPECT_EQ(Lanes(ScheduleLater(all, {}, 64, 1100, 1000)), (std::vector<size_t>{0}));
}

TEST(ScheduleLater, NeverTakesMoreThanADecodeHolds) {
  const std::vector<Candidate> all = {Prefill(0, 50, 100, {1, 2}), Prefill(1, 50, 100, {1, 2})};
  const auto picks = ScheduleLater(all, {}, 64, 100, 1000).picks;
  ASSERT_EQ(picks.size(), 2U);
  EXPECT_EQ(picks[0].rows + picks[1].rows, 64U);
}

TEST(ScheduleLater, AGroupSizeFromAPeerOnlyCostsTime) {
  const std::vector<Candidate> all = {Decode(0, {1, UINT32_MAX}), Decode(1, {1, 0}, 200)};
  EXPECT_EQ(Lanes(ScheduleLater(all, {}, 64, 250, 1000)), (std::vector<size_t>{1}));
  EXPECT_EQ(Lanes(ScheduleLater(all, {}, 64, 5000, 1000)), (std::vector<size_t>{0}));
}

TEST(GroupBook, RemembersABoundedNumber) {
  GroupBook book;
  for (uint64_t i = 0; i < 10000; i++) book.Settle({i, 1});
  EXPECT_EQ(book.settled({0, 1}), 0U);
  EXPECT_EQ(book.settled({9999, 1}), 1U);
}

}  // namespace
}  // namespace meshnet
