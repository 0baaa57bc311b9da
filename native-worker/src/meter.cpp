#include "meter.h"

#include <algorithm>
#include <numeric>

namespace meshnet {

void Meter::Tick(uint32_t decode_rows, uint32_t prefill_rows, uint64_t took_us) {
  const std::lock_guard lock(mutex_);
  ticks_++;
  decoded_ += decode_rows;
  prefilled_ += prefill_rows;
  const auto us = static_cast<uint32_t>(std::min<uint64_t>(took_us, UINT32_MAX));
  (prefill_rows > 0 ? prefill_us_ : decode_us_).Add(us);
  if (decode_rows > 0) batch_.Add(decode_rows);
}

void Meter::Stale(uint64_t frames) {
  const std::lock_guard lock(mutex_);
  stale_ += frames;
}

void Meter::Read(EngineStats * stats) const {
  const std::lock_guard lock(mutex_);
  stats->ticks = ticks_;
  stats->tokens_decoded = decoded_;
  stats->tokens_prefilled = prefilled_;
  stats->stale_frames = stale_;
  stats->decode_tick_us = decode_us_.Median();
  stats->prefill_tick_us = prefill_us_.Median();
  stats->batch_size = batch_.Mean();
}

void Meter::Recent::Add(uint32_t value) { values_[n_++ % kKept] = value; }

uint32_t Meter::Recent::Median() const {
  const size_t n = std::min(n_, kKept);
  if (n == 0) return 0;
  auto sorted = values_;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(n / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<ptrdiff_t>(n));
  return *middle;
}

float Meter::Recent::Mean() const {
  const size_t n = std::min(n_, kKept);
  if (n == 0) return 0;
  const auto end = values_.begin() + static_cast<ptrdiff_t>(n);
  return static_cast<float>(std::accumulate(values_.begin(), end, uint64_t{0})) / static_cast<float>(n);
}

}  // namespace meshnet
