// DecodeBatch alone, and with the head's scheduler in a ring of two stages whose ticks cost what a formula says.
#include "decode_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "scheduler.h"

namespace meshnet {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kMost = 16;

// Ticks of as many lanes as the cap allows, for `laps` tokens of each, at the speed that `us_per_token(cap)` says.
template <typename Cost>
void Feed(DecodeBatch & batch, uint64_t & now_us, uint32_t laps, Cost us_per_token, bool prefill = false) {
  for (uint32_t rows = 0; rows < laps * kLanes;) {
    const uint32_t cap = batch.Cap(kMost);
    ASSERT_LE(cap, kMost);
    const uint64_t took = cap * static_cast<uint64_t>(us_per_token(cap));
    batch.Ran({.start_us = now_us, .rows = cap, .prefill = prefill, .lanes = kLanes, .most = kMost, .took_us = took});
    now_us += took;
    rows += cap;
  }
}

TEST(DecodeBatch, LeavesSmallBatchesAlone) {
  const DecodeBatch batch;
  for (uint32_t most = 1; most <= kKernelRows; most++) EXPECT_EQ(batch.Cap(most), most);
  EXPECT_EQ(batch.Cap(5), kKernelRows);
  EXPECT_EQ(batch.Cap(kMost), kKernelRows);
}

TEST(DecodeBatch, RaisesTheCapWhileTheSpeedRises) {
  DecodeBatch batch;
  uint64_t now = 1;
  const auto cost = [](uint32_t cap) { return 6000 + 12000 / cap; };
  Feed(batch, now, 20, cost);
  EXPECT_EQ(batch.Cap(kMost), kMost);
  EXPECT_EQ(batch.Cap(12), 12U);
}

TEST(DecodeBatch, TakesBackARaiseThatGainsNothing) {
  DecodeBatch batch;
  uint64_t now = 1;
  bool raised = false;
  for (int i = 0; i < 20; i++) {
    Feed(batch, now, 1, [](uint32_t) { return 9000; });
    raised = raised || batch.Cap(kMost) == 2 * kKernelRows;
  }
  EXPECT_TRUE(raised);
  EXPECT_EQ(batch.Cap(kMost), kKernelRows);
}

TEST(DecodeBatch, TriesASmallerSizeWhenDelaysHaveGrown) {
  DecodeBatch batch;
  uint64_t now = 1;
  Feed(batch, now, 20, [](uint32_t cap) { return 6000 + 12000 / cap; });
  ASSERT_EQ(batch.Cap(kMost), kMost);
  Feed(batch, now, 60, [](uint32_t cap) { return cap > 8 ? 12000 : 8000; });
  EXPECT_EQ(batch.Cap(kMost), 8U);
}

TEST(DecodeBatch, HalvesEvenTheFirstSizeWhereThatIsFaster) {
  DecodeBatch batch;
  uint64_t now = 1;
  Feed(batch, now, 40, [](uint32_t cap) { return 4000 * cap; });
  EXPECT_EQ(batch.Cap(kMost), kFewestRows);
}

TEST(DecodeBatch, KeepsNothingThatOnlyFewLanesAskedFor) {
  DecodeBatch batch;
  batch.Ran({.start_us = 1, .rows = 3, .prefill = false, .lanes = 8, .most = 3});
  batch.Ran({.start_us = 50'000, .rows = 3, .prefill = false, .lanes = 9, .most = 4});
  EXPECT_EQ(batch.Cap(4), kKernelRows);
  batch.Ran({.start_us = 100'000, .rows = 4, .prefill = false, .lanes = 32, .most = kMost});
  EXPECT_EQ(batch.Cap(kMost), kKernelRows);
}

TEST(DecodeBatch, TriesASmallerSizeWhereNoLargerOneIsLeftButNotBesideAPrompt) {
  DecodeBatch batch;
  uint64_t now = 1;
  const auto run = [&](uint32_t laps) {
    for (uint32_t rows = 0; rows < laps * 8; rows += 4, now += 50'000) {
      batch.Ran({.start_us = now, .rows = 4, .prefill = false, .lanes = 8, .most = 4, .took_us = 40'000});
    }
  };
  run(kSettlingLaps + kMeasuredLaps * kMinRests);
  EXPECT_EQ(batch.Cap(4), kKernelRows);  // lanes that come and go make nobody slower
  run(2 * kMeasuredLaps);
  ASSERT_EQ(batch.Cap(4), kFewestRows);
  batch.Ran({.start_us = now, .rows = 0, .prefill = true, .lanes = 8, .most = 4});
  EXPECT_EQ(batch.Cap(4), kKernelRows);  // for as long as the prompt takes
}

TEST(DecodeBatch, TriesASmallerSizeAtOnceWhereTheHeadIsMostlyIdle) {
  DecodeBatch batch;
  uint64_t now = 1;
  const auto lap = [&] {
    for (uint32_t rows = 0; rows < 8; rows += batch.Cap(4)) {
      const bool few = batch.Cap(4) < 4;
      batch.Ran({.start_us = now, .rows = batch.Cap(4), .prefill = false, .lanes = 8, .most = 4, .took_us = 20'000});
      now += few ? 19'000 : 41'000;
    }
  };
  for (uint32_t i = 0; i <= kSettlingLaps + kMeasuredLaps; i++) lap();
  EXPECT_EQ(batch.Cap(4), kFewestRows);
  for (uint32_t i = 0; i < kSettlingLaps + kMeasuredLaps; i++) lap();
  for (uint32_t i = 0; i < kMeasuredLaps * kMinRests; i++, lap()) EXPECT_EQ(batch.Cap(4), kFewestRows);
}

TEST(DecodeBatch, SeesNoTrialThroughThatHasLostAlready) {
  DecodeBatch batch;
  uint64_t now = 1;
  uint32_t tried = 0;  // tokens of all lanes in the first trial
  for (int tick = 0; tick < 1000 && (tried == 0 || batch.Cap(kMost) != kKernelRows); tick++) {
    const uint32_t cap = batch.Cap(kMost);
    const uint64_t took = cap == kKernelRows ? 40'000 : cap * 100'000;  // ten times as much a token
    batch.Ran({.start_us = now, .rows = cap, .prefill = false, .lanes = kLanes, .most = kMost, .took_us = took});
    now += took;
    if (cap != kKernelRows) tried += cap;
  }
  EXPECT_GT(tried, kSettlingLaps * kLanes);
  EXPECT_LE(tried, (kSettlingLaps + 1) * kLanes);
}

TEST(DecodeBatch, TakesASizeThatIsALittleFasterWhereItsTicksAreNoWholeLaps) {
  constexpr uint32_t kOddLanes = 30;
  DecodeBatch batch;
  uint64_t now = 1;
  for (int tick = 0; tick < 1000 && batch.Cap(8) != 8; tick++) {
    batch.Ran({.start_us = now, .rows = batch.Cap(8), .prefill = false, .lanes = kOddLanes, .most = 8, .took_us = 40'000});
    now += 40'000;
  }
  ASSERT_EQ(batch.Cap(8), 8U);  // in a trial
  for (uint32_t rows = 0; rows <= (kSettlingLaps + kMeasuredLaps + 1) * kOddLanes; rows += batch.Cap(8)) {
    ASSERT_EQ(batch.Cap(8), 8U);
    batch.Ran({.start_us = now, .rows = 8, .prefill = false, .lanes = kOddLanes, .most = 8, .took_us = 76'000});
    now += 76'000;  // five per cent faster
  }
  EXPECT_EQ(batch.Cap(8), 8U);
}

TEST(DecodeBatch, TakesASizeThatIsALittleFaster) {
  for (const auto & [permille, taken] : {std::pair{30, true}, std::pair{10, false}}) {
    DecodeBatch batch;
    uint64_t now = 1;
    Feed(batch, now, 20, [&](uint32_t cap) { return cap > kKernelRows ? 8000 * 1000 / (1000 + permille) : 8000; });
    Feed(batch, now, 2 * kSettlingLaps, [](uint32_t) { return 8000; });
    EXPECT_EQ(batch.Cap(kMost) > kKernelRows, taken) << permille;
  }
}

TEST(DecodeBatch, LearnsNothingFromTicksWithPrompts) {
  DecodeBatch batch;
  uint64_t now = 1;
  Feed(
      batch, now, 50, [](uint32_t cap) { return 48000 / cap; }, true);
  EXPECT_EQ(batch.Cap(kMost), kKernelRows);
}

// A head with its scheduler, and a stage that runs its groups in order. Times in microseconds.
class DecodeRing {
 public:
  // fixed_cap 0: the measured one.
  DecodeRing(uint64_t delay_us, uint32_t fixed_cap) : delay_us_(delay_us), fixed_cap_(fixed_cap), lanes_(kLanes) {}

  // Tokens a second during `us`.
  double Run(uint64_t us) {
    const uint64_t start = now_us_;
    tokens_ = 0;
    while (now_us_ - start < us) Step();
    return static_cast<double>(tokens_) * 1e6 / static_cast<double>(now_us_ - start);
  }

 private:
  struct Decoding {
    uint64_t ready_us = 1;
    uint64_t group = 0;
  };

  // The weights, then rows; like half of a 1.1B model.
  static uint64_t Cost(uint64_t rows) { return 12'000 + 6'000 * rows; }

  void Step() {
    std::vector<Candidate> all;
    std::set<uint64_t> away;
    uint64_t next_us = UINT64_MAX;
    for (size_t i = 0; i < lanes_.size(); i++) {
      const Decoding & lane = lanes_[i];
      if (lane.ready_us <= now_us_) {
        all.push_back({.lane = i, .decode = true, .rows = 1, .since_us = lane.ready_us});
      } else {
        away.insert(lane.group);
        next_us = std::min(next_us, lane.ready_us);
      }
    }
    RingLoad load{.lanes = kLanes, .shares = kLanes / 2.0, .n_stages = 2};
    load.away = static_cast<uint32_t>(away.size());
    load.step_us = step_us_;
    const uint32_t most = DecodeCap(load);
    load.cap = fixed_cap_ != 0 ? fixed_cap_ : batch_.Cap(most);
    const Schedule schedule = ScheduleHead(all, load, {}, 256, now_us_, 1000);
    if (schedule.picks.empty()) {
      now_us_ = std::max(now_us_ + 1, std::min(next_us, schedule.wake_us));
      return;
    }
    const auto rows = static_cast<uint32_t>(schedule.picks.size());
    EXPECT_LE(rows, most);
    step_us_ = Cost(rows);
    batch_.Ran(
        {.start_us = now_us_, .rows = rows, .prefill = false, .lanes = kLanes, .most = most, .took_us = step_us_});
    now_us_ += step_us_;
    later_free_us_ = std::max(later_free_us_, now_us_ + delay_us_) + step_us_;
    groups_++;
    for (const Pick & pick : schedule.picks) lanes_[pick.lane] = {later_free_us_ + delay_us_, groups_};
    tokens_ += rows;
  }

  uint64_t delay_us_;
  uint32_t fixed_cap_;
  std::vector<Decoding> lanes_;
  DecodeBatch batch_;
  uint64_t now_us_ = 1;
  uint64_t step_us_ = 0;
  uint64_t later_free_us_ = 0;
  uint64_t groups_ = 0;
  uint64_t tokens_ = 0;
};

double SpeedAt(uint64_t delay_us, uint32_t fixed_cap) {
  DecodeRing ring(delay_us, fixed_cap);
  ring.Run(30'000'000);
  return ring.Run(60'000'000);
}

TEST(DecodeRing, KeepsSmallGroupsOnTheirWayOverALongDelay) {
  const double measured = SpeedAt(50'000, 0);
  EXPECT_GT(measured, 1.15 * SpeedAt(50'000, kMost));
  EXPECT_GT(measured, 0.93 * SpeedAt(50'000, 8));
}

TEST(DecodeRing, RunsLargeBatchesWithoutDelay) {
  const double measured = SpeedAt(0, 0);
  EXPECT_GT(measured, 1.15 * SpeedAt(0, kKernelRows));
  EXPECT_GT(measured, 0.95 * SpeedAt(0, kMost));
}

}  // namespace
}  // namespace meshnet
