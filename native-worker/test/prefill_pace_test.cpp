// PrefillPace alone, and with the head's scheduler in a ring whose ticks cost what a formula says.
#include "prefill_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "bounds.h"
#include "scheduler.h"

namespace meshnet {
namespace {

constexpr uint32_t kMaxRows = 256;

PaceLoad Load(uint32_t n_stages, uint32_t lanes = 4) { return {.n_stages = n_stages, .lanes = lanes}; }

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

// What is to hold of a prompt among decoders.
constexpr double kMaxDecodeRatio = 2.5;
constexpr double kMaxPrefillRatio = 2;

struct Kernels {
  bool tiles = false;
  bool noisy = false;
};

// A head with its scheduler, and stages that run its groups in order. Times in microseconds.
class SimulatedRing {
 public:
  SimulatedRing(std::vector<double> slowness, uint64_t delay_us, uint32_t n_decoders, Kernels kernels = {})
      : slowness_(std::move(slowness)),
        delay_us_(delay_us),
        kernels_(kernels),
        free_us_(slowness_.size(), 0),
        decoders_(n_decoders) {}

  // Runs until the prompt is computed everywhere; gives how long that took. 0 rows: for `us`.
  uint64_t Run(uint32_t prompt, uint64_t us = UINT64_MAX) {
    const uint64_t start = now_us_;
    prompt_ = prompt;
    prompt_since_us_ = start;
    for (const bool finite = prompt == 0; finite ? now_us_ - start < us : prompt_ > 0;) Step();
    return (finish_us_ > start ? finish_us_ : now_us_) - start;
  }
  void Decode(uint32_t n_decoders) { decoders_.resize(n_decoders); }
  // 95 of 100 tokens since the last call came within this time of the one before.
  double P95() {
    std::sort(gaps_.begin(), gaps_.end());
    const auto gap = static_cast<double>(gaps_.at(gaps_.size() * 95 / 100));
    gaps_.clear();
    return gap;
  }

 private:
  struct Decoder {
    bool away = false;
    uint64_t sent_us = 0;
    uint64_t group = 0;
    uint64_t ready_us = 0;
    uint64_t slowest_us = 0;
    uint64_t seen_us = 0;  // its last token
  };

  // The weights, then rows; like a 1.1B model in halves.
  double Cost(uint32_t decode, uint32_t prefill) const {
    if (!kernels_.tiles) return 8000 + 1500.0 * decode + 400.0 * prefill;
    // As measured behind 1,000 positions: from five rows on they are computed in tiles of sixteen.
    const uint32_t rows = decode + prefill;
    if (rows <= 4) return 16'000 + 1500.0 * rows;
    return 37'000 + 1200.0 * std::min(rows, 16U) + 2700.0 * (std::max(rows, 16U) - 16);
  }

  // Ticks of a busy machine: a tenth up or down, and one of forty by half as much again.
  double Noise() {
    if (!kernels_.noisy) return 1;
    const double even = std::uniform_real_distribution(0.9, 1.1)(random_);
    return random_() % 40 == 0 ? 1.5 * even : even;
  }

  void Step() {
    std::vector<Candidate> all;
    RingLoad load{.step_us = step_us_};
    uint64_t next_us = UINT64_MAX;
    std::vector<uint64_t> away;
    for (size_t i = 0; i < decoders_.size(); i++) {
      Decoder & d = decoders_[i];
      if (d.away && d.ready_us <= now_us_) {
        d.away = false;
        if (slowness_.size() > 1) pace_.Returned(d.group, d.ready_us - d.sent_us, d.slowest_us);
      }
      load.lanes++;
      load.alive++;
      load.shares += 1.0 / static_cast<double>(slowness_.size());
      load.pace = &pace_;
      if (d.away) {
        away.push_back(d.group);
        next_us = std::min(next_us, d.ready_us);
      } else {
        all.push_back({.lane = i, .decode = true, .rows = 1, .since_us = d.ready_us});
      }
    }
    load.n_stages = static_cast<uint32_t>(slowness_.size());
    load.alone_rows = pace_.AloneRows();
    pace_.Forget(now_us_);
    next_us = std::min(next_us, pace_.ForgetAt());
    std::sort(away.begin(), away.end());
    load.away = static_cast<uint32_t>(std::unique(away.begin(), away.end()) - away.begin());
    load.prompts = prompt_ > 0 ? 1 : 0;
    if (prompt_ > 0) all.push_back({.lane = decoders_.size(), .rows = prompt_, .since_us = prompt_since_us_});
    const Schedule schedule = ScheduleHead(all, load, {}, kMaxRows, now_us_, 1000);
    if (schedule.picks.empty()) {
      now_us_ = std::max(now_us_ + 1, std::min(next_us, schedule.wake_us));
      return;
    }
    RunTick(schedule.picks);
  }

  void RunTick(const std::vector<Pick> & picks) {
    uint32_t decode = 0;
    uint32_t prefill = 0;
    for (const Pick & pick : picks) (pick.lane < decoders_.size() ? decode : prefill) += pick.rows;
    const double cost = Cost(decode, prefill) * Noise();
    const auto took = static_cast<uint64_t>(cost * slowness_[0]);
    const uint64_t group = ++groups_;
    now_us_ += took;
    if (prefill == 0) step_us_ = took;
    pace_.Ran(decode, prefill, took, static_cast<uint32_t>(decoders_.size()));
    if (slowness_.size() > 1) pace_.Sent(group, prefill > 0, now_us_);
    uint64_t at = now_us_;
    uint64_t slowest = took;
    for (size_t stage = 1; stage < slowness_.size(); stage++) {
      const auto there = static_cast<uint64_t>(cost * slowness_[stage]);
      free_us_[stage] = std::max(at + delay_us_, free_us_[stage]) + there;
      at = free_us_[stage];
      slowest = std::max(slowest, there);
    }
    finish_us_ = at;
    if (slowness_.size() > 1) at += delay_us_;
    prompt_ -= prefill;
    prompt_since_us_ = now_us_;
    for (const Pick & pick : picks) {
      if (pick.lane >= decoders_.size()) continue;
      Decoder & d = decoders_[pick.lane];
      if (d.seen_us != 0) gaps_.push_back(at - d.seen_us);
      d = {.away = true, .sent_us = now_us_, .group = group, .ready_us = at, .slowest_us = slowest, .seen_us = at};
    }
  }

  std::vector<double> slowness_;  // of each stage
  uint64_t delay_us_;
  Kernels kernels_;
  std::vector<uint64_t> free_us_;
  std::vector<Decoder> decoders_;
  PrefillPace pace_;
  uint64_t now_us_ = 1;
  uint64_t groups_ = 0;
  uint64_t step_us_ = 0;
  std::mt19937 random_;
  uint64_t finish_us_ = 0;
  uint32_t prompt_ = 0;
  uint64_t prompt_since_us_ = 0;
  std::vector<uint64_t> gaps_;
};

TEST(SimulatedRing, ASecondStageBeginsBeforeAShortPromptIsThroughTheFirst) {
  SimulatedRing ring({1, 1}, 0, 0);
  // In decodes as large as they come it would take 110 + 110 + 59 ms.
  EXPECT_LT(ring.Run(384), 252'000U);
}

struct Setting {
  std::vector<double> slowness;
  uint64_t delay_us;
  uint32_t n_decoders;
  Kernels kernels = {};
};

class PacedRing : public testing::TestWithParam<Setting> {};

TEST_P(PacedRing, ALongPromptAndItsNeighboursBothGoOn) {
  const Setting & s = GetParam();
  constexpr uint32_t kPrompt = 3500;
  constexpr uint64_t kQuietUs = 5'000'000;
  constexpr uint32_t kOwnPrompt = 96;
  SimulatedRing alone(s.slowness, s.delay_us, 0, s.kernels);
  const auto alone_us = static_cast<double>(alone.Run(kPrompt));
  SimulatedRing ring(s.slowness, s.delay_us, 0, s.kernels);
  ring.Run(kOwnPrompt);
  ring.Decode(s.n_decoders);
  ring.Run(0, kQuietUs);
  const double quiet = ring.P95();
  const auto among_us = static_cast<double>(ring.Run(kPrompt));
  EXPECT_LE(ring.P95() / quiet, kMaxDecodeRatio);
  EXPECT_LE(among_us / alone_us, kMaxPrefillRatio);
  ring.Run(0, kQuietUs);
  EXPECT_LE(ring.P95() / quiet, s.kernels.noisy ? 1.25 : 1.1);
}

INSTANTIATE_TEST_SUITE_P(
    Rings, PacedRing,
    testing::Values(Setting{{1}, 0, 1}, Setting{{1}, 0, 3}, Setting{{1, 1}, 0, 3}, Setting{{1, 1.5}, 0, 3},
                    Setting{{1.5, 1}, 0, 3}, Setting{{1, 0.3}, 0, 3}, Setting{{1, 1}, 20'000, 3},
                    Setting{{1, 1}, 20'000, 1}, Setting{{2, 1}, 5'000, 8}, Setting{{1, 1, 1}, 10'000, 4},
                    Setting{{1, 1}, 4'000, 3, {true, false}}, Setting{{1, 1}, 20'000, 3, {true, false}},
                    Setting{{1}, 0, 1, {false, true}}, Setting{{1, 1}, 0, 3, {false, true}},
                    Setting{{1, 1, 1}, 10'000, 4, {false, true}}, Setting{{1, 1}, 4'000, 3, {true, true}},
                    Setting{{1, 1}, 20'000, 3, {true, true}}));

}  // namespace
}  // namespace meshnet
