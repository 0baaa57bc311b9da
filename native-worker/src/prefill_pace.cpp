#include "prefill_pace.h"

#include <algorithm>
#include <iterator>

#include "bounds.h"

namespace meshnet {
namespace {

// Of a new value, in a mean that follows the load.
constexpr double kWeight = 0.25;
// Of a new cost that is above the mean: a tick that takes too long makes everybody wait, one that is short nobody.
constexpr double kRiseWeight = 0.5;
// A stage that is this much faster than the slowest still counts as one that a group can be at.
constexpr double kStageTolerance = 0.25;
// Of a first tick, at most this many times as much may be the part that it shares with decoding.
constexpr double kMaxShared = 4;
// A trip that takes this many times as long as usual is no delay any more.
constexpr double kLostTrips = 4;

void Follow(double value, double weight, double * mean) {
  *mean = *mean == 0 ? value : *mean + (value - *mean) * weight;
}

}  // namespace

uint32_t PrefillPace::Rows(uint32_t decode_rows, uint32_t n_stages, uint32_t left) const {
  // Decoders that come back while their last group is further on have a fast way: theirs can follow it at once.
  const size_t max_groups = std::max<size_t>(MaxGroups(n_stages), decode_rows > 0 && n_stages > 1 ? 2 : 1);
  if (left == 0 || on_way_.size() >= max_groups) return 0;
  if (decode_rows > 0) {
    const auto measured = steps_.find(decode_rows);
    if (measured == steps_.end() || n_ticks_ - measured->second.tick >= kBelievedTicks) return 0;
  }
  uint32_t rows = std::min(left, kFirstRows);
  if (row_us_ > 0) {
    constexpr double target = kTickTargetUs;
    const double step = StepUs(decode_rows);
    double budget = step == 0 ? target / 2 : std::min(kPrefillShare * step, target - step);
    budget = std::max<double>(budget, kMinPrefillUs);
    rows = static_cast<uint32_t>(std::clamp<double>(std::max(budget / row_us_, LeastRows(step)), 1, left));
  }
  const uint32_t whole = (decode_rows + rows) / kKernelRows * kKernelRows;
  return whole > decode_rows ? whole - decode_rows : rows;
}

uint32_t PrefillPace::AloneRows() const {
  if (row_us_ == 0) return kAloneRows;
  constexpr double target = kAloneTargetUs;
  const double step = StepUs(0);
  const double rows = std::max({target - step, target / 2, step}) / row_us_;
  const auto whole = static_cast<uint32_t>(std::min<double>(rows, kMaxFrameTokens)) / kKernelRows * kKernelRows;
  return std::max(whole, kAloneRows);
}

// Rows beside a step of decoding with which a prompt takes no more than twice as long as alone.
double PrefillPace::LeastRows(double step_us) const {
  const double least = step_us / row_us_;  // as long as the decoding takes: enough where a row costs the same everywhere
  if (alone_row_us_ == 0) return least;
  // Kernels may take as long for two rows as for ten. Each of a few rows then costs more than alone, and a budget of time
  // would make them fewer and still dearer.
  const double spare_us = 2 * alone_row_us_ - row_us_;
  const double even = spare_us > 0 ? step_us / spare_us : kFirstRows;
  return std::max(least, std::min<double>(even, kFirstRows));
}

void PrefillPace::Ran(uint32_t decode_rows, uint32_t prefill_rows, uint64_t took_us) {
  n_ticks_++;
  took_us_ = took_us;
  const auto took = static_cast<double>(took_us);
  if (decode_rows > 0) last_decode_rows_ = decode_rows;
  if (prefill_rows == 0) {
    Step & step = steps_[decode_rows];
    Follow(took, kWeight, &step.us);
    step.tick = n_ticks_;
    return;
  }
  if (decode_rows == 0 && prefill_rows >= kAloneRows) Follow(took / prefill_rows, kWeight, &alone_row_us_);
  // The weights are read once for all rows of a tick, so prefill costs what it adds to the tick of decoding.
  double row = std::max(0.0, took - StepUs(decode_rows)) / prefill_rows;
  if (row_us_ == 0) {
    row_us_ = std::max(row, took / prefill_rows / kMaxShared);
  } else {
    row = std::max(row, row_us_ / 2);
    Follow(row, row > row_us_ ? kRiseWeight : kWeight, &row_us_);
  }
}

void PrefillPace::Sent(uint64_t group, bool prefill, uint64_t now_us) {
  newest_ = group;
  if (!prefill) return;
  on_way_.push_back({group, now_us + std::max(kLostUs, kLostTicks * took_us_)});
  if (on_way_.size() > kMaxPrefillGroups) on_way_.pop_front();
}

void PrefillPace::Forget(uint64_t now_us) {
  if (on_way_.empty()) return;
  while (!on_way_.empty() && on_way_.front().until_us <= now_us) on_way_.pop_front();
  if (on_way_.empty()) quiet_from_ = newest_ + 1;
}

void PrefillPace::Returned(uint64_t group, uint64_t away_us, uint64_t slowest_us) {
  if (on_way_.empty()) {
    if (group < quiet_from_ || slowest_us == 0) return;
    // No other stage can have computed for longer than the group was away.
    slowest_us = std::min(slowest_us, std::max(away_us, static_cast<uint64_t>(StepUs(0))));
    Follow(static_cast<double>(away_us), kWeight, &away_us_);
    Follow(static_cast<double>(slowest_us), kWeight, &slowest_us_);
    return;
  }
  while (!on_way_.empty() && on_way_.front().group <= group) on_way_.pop_front();
  if (on_way_.empty()) quiet_from_ = newest_ + 1;
}

uint64_t PrefillPace::LostAt(uint64_t sent_us) const {
  return sent_us + std::max(kLostUs, static_cast<uint64_t>(kLostTrips * away_us_));
}

// Without prefill. The nearest size that is known stands for one that is not; 0: none is known.
double PrefillPace::StepUs(uint32_t decode_rows) const {
  if (steps_.empty()) return 0;
  const auto above = steps_.lower_bound(decode_rows > 0 ? decode_rows : last_decode_rows_);
  if (above == steps_.end()) return std::prev(above)->second.us;
  return above->second.us;
}

// As many as keep the slowest stage busy for a trip round the ring: one there, one here, and what fits on the way.
size_t PrefillPace::MaxGroups(uint32_t n_stages) const {
  if (slowest_us_ == 0) return std::max(1U, n_stages);
  const double others = std::min<double>(away_us_ / slowest_us_ + kStageTolerance, kMaxPrefillGroups - 1);
  return 1 + static_cast<size_t>(others);
}

}  // namespace meshnet
