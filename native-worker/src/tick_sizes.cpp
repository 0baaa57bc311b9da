#include "tick_sizes.h"

#include <algorithm>
#include <iterator>

namespace meshnet {
namespace {

// Of a new cost, in a mean that follows the load. Above the mean most of it is a disturbance, and a size that is passed
// over for it is seldom measured again.
constexpr double kFallWeight = 0.25;
constexpr double kRiseWeight = 0.15;

}  // namespace

void TickSizes::Ran(uint32_t rows, uint64_t took_us) {
  // What is left of a prompt says little of a whole size.
  if (rows % kKernelRows != 0 && !sizes_.empty()) return;
  n_ticks_++;
  const uint32_t whole = (rows + kKernelRows - 1) / kKernelRows * kKernelRows;
  Size & size = sizes_[whole];
  const auto took = static_cast<double>(took_us);
  const bool outdated = size.us == 0 || n_ticks_ - size.tick > kFreshTicks;
  size.us = outdated ? took : size.us + (took - size.us) * (took > size.us ? kRiseWeight : kFallWeight);
  size.tick = n_ticks_;
  std::erase_if(sizes_, [this](const auto & known) { return n_ticks_ - known.second.tick > kMeasuredTicks; });
}

double TickSizes::Us(uint32_t rows) const {
  const double us = RowUs(rows) * rows;
  const auto above = sizes_.lower_bound(rows);
  if (above == sizes_.begin()) return above->second.us * rows / above->first;
  // Between the next smaller and the next larger one, or on the line from the smallest to the largest.
  const bool beyond = above == sizes_.end();
  const auto & [fewer, low] = beyond ? *sizes_.begin() : *std::prev(above);
  const auto & [more, high] = beyond ? *sizes_.rbegin() : *above;
  // One that takes no longer than a smaller one says nothing of larger ones.
  if (more == fewer || (beyond && high.us <= low.us)) return us;
  const double slope = std::max(0.0, high.us - low.us) / (more - fewer);
  return std::min(us, beyond ? high.us + slope * (rows - more) : low.us + slope * (rows - fewer));
}

double TickSizes::RowUs(uint32_t most) const {
  double least = 0;
  for (const auto & [rows, size] : sizes_) {
    if (rows > most && least > 0) break;
    if (least == 0 || size.us / rows < least) least = size.us / rows;
  }
  return least;
}

uint32_t TickSizes::Largest(uint32_t rows, double limit_us) const {
  for (auto it = sizes_.rbegin(); it != sizes_.rend() && it->first > rows; ++it) {
    if (it->first <= kMaxMeasuredRows && it->second.us <= limit_us) return it->first;
  }
  const uint32_t above = rows + kKernelRows;
  if (above > kMaxMeasuredRows || (n_ticks_ + 1) % kTrialTicks != 0) return rows;
  return sizes_.contains(above / kKernelRows * kKernelRows) ? rows : above;
}

uint32_t TickSizes::Fewest(uint32_t decode_rows, double row_us) const {
  for (const auto & [rows, size] : sizes_) {
    if (rows > kMaxMeasuredRows) break;
    if (rows > decode_rows && size.us <= row_us * (rows - decode_rows)) return rows - decode_rows;
  }
  return kMaxMeasuredRows;
}

}  // namespace meshnet
