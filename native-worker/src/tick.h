// TickRunner: one decode of several lanes, its failures, and where its results go.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lane.h"
#include "meter.h"
#include "sampler.h"
#include "shard.h"
#include "trace.h"

namespace meshnet {

// Microseconds of a steady clock; never 0.
uint64_t NowUs();

struct TickLane {
  Lane * lane = nullptr;
  Sampler * sampler = nullptr;  // the tail's
  LaneRun run;
  Status status;  // result: not ok ends the lane
};

class TickRunner {
 public:
  // `on_tick`: with tracing only. Everything outlives the runner.
  TickRunner(Shard * shard, Sequences * sequences, Meter * meter, std::function<void(const TickTrace &)> on_tick)
      : shard_(shard), sequences_(sequences), meter_(meter), on_tick_(std::move(on_tick)) {}

  // Runs the lanes in their order as one batch. When that fails, each of them is put back to where it was and tried
  // alone; one that fails again, or had no mates, gets the status: kDecodeFailed, kRewindLost, or what Shard::Decode
  // refused. Nothing of a lane whose decode failed has left this stage.
  void Run(std::span<TickLane> lanes);

 private:
  Status Decode(std::span<TickLane> lanes);
  void Deliver(std::span<TickLane> lanes, TickTimes times);
  Status Restore(const TickLane & lane);

  Shard * shard_;
  Sequences * sequences_;
  Meter * meter_;
  std::function<void(const TickTrace &)> on_tick_;
  uint64_t n_ticks_ = 0;
  std::vector<Row> rows_;
  std::vector<float> input_;
};

}  // namespace meshnet
