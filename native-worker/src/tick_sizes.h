// TickSizes: what ticks of one kind take, by their rows. Kernels may take as long for sixteen rows as for five, so that
// no cost of a row tells it: sizes are measured.
// Threads: pure bookkeeping; the engine thread.
#pragma once

#include <cstdint>
#include <map>

namespace meshnet {

// Rows that kernels work on together: a tick is filled up to a multiple.
inline constexpr uint32_t kKernelRows = 4;
// The largest tick beside decoding that is put together by what such ticks have taken.
inline constexpr uint32_t kMaxMeasuredRows = 16;
// After how many ticks without a measurement a size is forgotten, and how often one that is not known is tried. What is
// left of a prompt does not count as a tick.
inline constexpr uint64_t kMeasuredTicks = 128;
inline constexpr uint64_t kTrialTicks = 16;
// Of a size that was not measured for more ticks the next measurement replaces all before: prompts grow, and attention
// with them.
inline constexpr uint64_t kFreshTicks = 32;

class TickSizes {
 public:
  // Remembers what it took, and forgets sizes that were not measured for kMeasuredTicks.
  void Ran(uint32_t rows, uint64_t took_us);
  bool empty() const { return sizes_.empty(); }
  // 0: none is known.
  uint32_t LargestKnown() const { return empty() ? 0 : sizes_.rbegin()->first; }

  // What a tick takes: in between of those that were measured in proportion, and never more than as many smaller ones.
  // Not for an empty one, as the next.
  double Us(uint32_t rows) const;
  // What a row takes in the best of the ticks with no more than `most` rows, or in the smallest.
  double RowUs(uint32_t most) const;

  // The rows of the largest tick that is known to take no longer, if that is more than `rows`. Else `rows`, or now and
  // then the size above, to see what it takes.
  uint32_t Largest(uint32_t rows, double limit_us) const;

  // The fewest rows of prefill beside those of decoding that take no longer than `row_us` each; kMaxMeasuredRows where
  // none are known to.
  uint32_t Fewest(uint32_t decode_rows, double row_us) const;

 private:
  struct Size {
    double us = 0;
    uint64_t tick = 0;  // of the last measurement
  };

  std::map<uint32_t, Size> sizes_;  // by rows, in whole kKernelRows
  uint64_t n_ticks_ = 0;
};

}  // namespace meshnet
