#include "decode_batch.h"

#include <algorithm>
#include <utility>

namespace meshnet {
namespace {

// Speeds with numbers of lanes that differ by more than an eighth are not compared.
bool IsOther(uint32_t lanes, uint32_t before) {
  return uint64_t{lanes} * 8 > uint64_t{before} * 9 || uint64_t{before} * 8 > uint64_t{lanes} * 9;
}

}  // namespace

uint32_t DecodeBatch::Cap(uint32_t most) const {
  return most <= kFewestRows ? most : std::clamp(tried_, kFewestRows, most);
}

void DecodeBatch::Ran(const DecodeTick & tick) {
  const uint64_t before_us = std::exchange(last_us_, 0);
  const uint32_t before_rows = std::exchange(last_rows_, tick.rows);
  const uint64_t before_took_us = std::exchange(last_took_us_, tick.took_us);
  if (tick.prefill) return GiveUp();
  if (tick.rows == 0 || tick.most <= kFewestRows) return;
  last_us_ = tick.start_us;
  if (IsOther(tick.lanes, lanes_)) return Restart(tick);
  Limit(tick.most);
  if (before_us == 0) return;
  if (settling_ > 0) {
    settling_ -= std::min<uint64_t>(settling_, before_rows);
    return;
  }
  rows_ += before_rows;
  us_ += tick.start_us - before_us;
  busy_us_ += before_took_us;
  if (rows_ < uint64_t{kMeasuredLaps} * lanes_) {
    if (HasLost()) EndTrial();
    return;
  }
  const auto us = static_cast<double>(std::max<uint64_t>(us_, 1));
  const double speed = static_cast<double>(rows_) / us;
  const double busy = static_cast<double>(busy_us_) / us;
  lanes_ = tick.lanes;
  Measure();
  Judge(speed, busy);
}

// With so many more or fewer lanes nothing that was measured holds; the size may still be right.
void DecodeBatch::Restart(const DecodeTick & tick) {
  lanes_ = tick.lanes;
  tried_ = kept_;
  Limit(tick.most);
  up_ = kept_ < most_;
  rests_left_ = up_ ? 0 : kMinRests;
  rests_ = kMinRests;
  first_ = true;
  Settle();
}

// Another size is in use: nothing counts until the groups have it.
void DecodeBatch::Settle() {
  settling_ = uint64_t{kSettlingLaps} * lanes_;
  Measure();
}

void DecodeBatch::Measure() {
  rows_ = 0;
  us_ = 0;
  busy_us_ = 0;
}

// A size that was the largest possible says nothing of what is best where more is possible.
void DecodeBatch::Limit(uint32_t most) {
  const bool trial = tried_ != kept_;
  const bool was_limited = !trial && kept_ == most_ && most > most_;
  most_ = most;
  kept_ = std::min(was_limited ? std::max(kept_, kKernelRows) : kept_, most_);
  if (!trial) tried_ = kept_;
}

// Nothing can be measured beside a prompt, and a trial would last as long as that does.
void DecodeBatch::GiveUp() {
  if (tried_ == kept_) return;
  tried_ = kept_;
  Settle();
}

void DecodeBatch::Judge(double speed, double busy) {
  if (tried_ == kept_) {
    kept_speed_ = speed;
    if (std::exchange(first_, false) && busy < kIdle) {
      up_ = false;
      return Try();
    }
    if (rests_left_ > 0) {
      rests_left_--;
      return;
    }
  } else if (speed > kept_speed_ * kFaster) {
    kept_ = tried_;
    kept_speed_ = speed;
    rests_ = kMinRests;
  } else {
    return EndTrial();
  }
  Try();
}

// Longer already than a trial may take that wins: of a size that costs twice as much only half is measured.
bool DecodeBatch::HasLost() const {
  const double rows = double{kMeasuredLaps} * lanes_;
  return tried_ != kept_ && static_cast<double>(us_) * kept_speed_ * kFaster > rows;
}

void DecodeBatch::EndTrial() {
  tried_ = kept_;
  Settle();
  Rest();
}

// Twice or half of the size in use, and a multiple of kKernelRows where it can be; the size in use at either end.
uint32_t DecodeBatch::Next() const {
  if (up_) return std::min(2 * kept_, most_);
  const uint32_t half = kept_ / 2;
  return std::max(half > kKernelRows ? half / kKernelRows * kKernelRows : half, kFewestRows);
}

void DecodeBatch::Try() {
  kept_ = tried_ = std::min(kept_, most_);
  const uint32_t next = Next();
  if (next == kept_) return Rest();
  tried_ = next;
  Settle();
}

void DecodeBatch::Rest() {
  up_ = !up_;
  rests_left_ = rests_;
  rests_ = std::min(2 * rests_, kMaxRests);
}

}  // namespace meshnet
