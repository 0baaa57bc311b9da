// DecodeBatch: how many lanes a head decodes in one tick. Large batches cost less a token, small ones put more of them
// on their way round the ring; which counts for more depends on kernels and delays, so sizes are tried and measured.
// Threads: pure bookkeeping; the engine thread.
#pragma once

#include <cstdint>

#include "prefill_pace.h"

namespace meshnet {

// The smallest size that is tried.
inline constexpr uint32_t kFewestRows = 2;
// How much faster another size must be than the one in use. A measurement is off by more at times; but sizes between
// which it decides wrongly are hardly different, and the next trial comes.
inline constexpr double kFaster = 1.02;
// Tokens of every lane in one measurement, and before it until groups have the new size.
inline constexpr uint32_t kMeasuredLaps = 3;
inline constexpr uint32_t kSettlingLaps = 2;
// Measurements from a trial that failed to the next one; doubled each time.
inline constexpr uint32_t kMinRests = 4;
inline constexpr uint32_t kMaxRests = 64;
// A head that computes for less than this part of the time has room for smaller groups: more of them then are on their
// way at once, and each is back sooner.
inline constexpr double kIdle = 0.6;

// A tick of a head in which every lane ran.
struct DecodeTick {
  uint64_t start_us = 0;
  uint32_t rows = 0;     // of decoding
  bool prefill = false;  // rows of prompts were with them, or alone, or wait for their turn
  uint32_t lanes = 0;    // that decode, ready or on their way round the ring
  uint32_t most = 0;     // DecodeCap
  uint64_t took_us = 0;  // how long the head computed
};

// Begins with the smallest batch that all kernels like and raises it only while the measured speed rises, or lowers it
// while that helps, as over long delays; later it tries the sizes above and below from time to time, because delays
// change.
class DecodeBatch {
 public:
  // Lanes of the next tick; never more than `most`, so that every stage has a group to work on.
  uint32_t Cap(uint32_t most) const;
  void Ran(const DecodeTick & tick);

 private:
  void Restart(const DecodeTick & tick);
  void Settle();
  void Measure();
  void Limit(uint32_t most);
  void GiveUp();
  void Judge(double speed, double busy);
  bool HasLost() const;
  void EndTrial();
  uint32_t Next() const;
  void Try();
  void Rest();

  uint32_t kept_ = kKernelRows;   // the fastest size so far
  uint32_t tried_ = kKernelRows;  // the size in use; another than kept_: a trial
  double kept_speed_ = 0;         // of kept_, in tokens per microsecond
  bool up_ = true;                // where the next trial goes
  bool first_ = true;             // nothing was measured with so many lanes
  uint32_t rests_left_ = 0;
  uint32_t rests_ = kMinRests;

  // The measurement that runs.
  uint32_t lanes_ = 0;
  uint32_t most_ = 0;
  uint64_t last_us_ = 0;  // start of the tick before; 0: the time since says nothing
  uint32_t last_rows_ = 0;
  uint64_t last_took_us_ = 0;
  uint64_t settling_ = 0;  // rows that do not count yet
  uint64_t rows_ = 0;
  uint64_t us_ = 0;
  uint64_t busy_us_ = 0;
};

}  // namespace meshnet
