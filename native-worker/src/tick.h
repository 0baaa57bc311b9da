// TickRunner: one decode of several lanes, its failures, and where its results go.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lane.h"
#include "meter.h"
#include "sampler.h"
#include "sampling_pool.h"
#include "shard.h"
#include "trace.h"

namespace meshnet {

// Microseconds of a steady clock; never 0.
uint64_t NowUs();

struct TickLane {
  Lane * lane = nullptr;
  std::shared_ptr<Sampler> sampler;  // the tail's
  LaneRun run;
  Status status;      // result: not ok ends the lane
  uint64_t draw = 0;  // result: the draw at the pool that the lane waits for; 0: none
};

class TickRunner {
 public:
  // `pool`: where a tail draws tokens when that takes time; nullptr: here. `on_tick`: with tracing only, which
  // needs no pool. Everything outlives the runner.
  TickRunner(Shard * shard, Sequences * sequences, Meter * meter, SamplingPool * pool,
             std::function<void(const TickTrace &)> on_tick)
      : shard_(shard), sequences_(sequences), meter_(meter), pool_(pool), on_tick_(std::move(on_tick)) {}

  // Runs the lanes in their order as one batch. When that fails, each of them is put back to where it was and tried
  // alone; one that fails again, or had no mates, gets the status: kDecodeFailed, kRewindLost, or what Shard::Decode
  // refused. Nothing of a lane whose decode failed has left this stage.
  void Run(std::span<TickLane> lanes);

 private:
  Status Decode(std::span<TickLane> lanes);
  void Deliver(std::span<TickLane> lanes, TickTimes times);
  Status Restore(const TickLane & lane);
  // Where the results of each lane go; last_rows: each one's last row in the batch.
  void Forward(std::span<TickLane> lanes, TickTimes times);
  void DrawHere(std::span<TickLane> lanes, std::span<const size_t> last_rows, TickTimes times,
                std::vector<Drawn> * drawn);
  void DrawInPool(std::span<TickLane> lanes, std::span<const size_t> last_rows, const TickTimes & times);
  void Trace(std::span<const TickLane> lanes, std::span<const Drawn> drawn);
  std::span<const float> LogitsOf(size_t row) const;

  Shard * shard_;
  Sequences * sequences_;
  Meter * meter_;
  SamplingPool * pool_;
  std::function<void(const TickTrace &)> on_tick_;
  uint64_t n_ticks_ = 0;
  uint64_t n_draws_ = 0;
  std::vector<Row> rows_;
  std::vector<float> input_;
};

}  // namespace meshnet
