// PrefillPace with the head's scheduler, in a ring whose ticks cost what a formula says.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "bounds.h"
#include "prefill_pace.h"
#include "scheduler.h"

namespace meshnet {
namespace {

constexpr uint32_t kMaxRows = 256;

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
