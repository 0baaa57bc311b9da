// Meter: what the engine has done, for Describe and Report.
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "engine.h"

namespace meshnet {

class Meter {
 public:
  void Tick(uint32_t decode_rows, uint32_t prefill_rows, uint64_t took_us);
  void Stale(uint64_t frames);
  // Adds counters and recent medians to `stats`.
  void Read(EngineStats * stats) const;

 private:
  // The newest values, for a median that follows the load.
  class Recent {
   public:
    void Add(uint32_t value);
    uint32_t Median() const;
    float Mean() const;

   private:
    static constexpr size_t kKept = 64;
    std::array<uint32_t, kKept> values_{};
    size_t n_ = 0;
  };

  mutable std::mutex mutex_;
  uint64_t ticks_ = 0, decoded_ = 0, prefilled_ = 0, stale_ = 0;
  Recent decode_us_, prefill_us_, batch_;
};

}  // namespace meshnet
