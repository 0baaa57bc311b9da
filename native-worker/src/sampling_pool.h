// SamplingPool: draws tokens and sends them off while the engine runs its next tick.
// Threads: Submit, Take and Recall are the engine thread's; draws are made by threads of the pool, which own what was
// submitted until its result is taken or recalled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "emission.h"
#include "port.h"
#include "sampler.h"
#include "status.h"

namespace meshnet {

// A token to be drawn. A lane has one at a time, so nobody else uses its sampler meanwhile.
struct Draw {
  uint64_t id = 0;  // never used before
  LaneKey lane;
  std::shared_ptr<Sampler> sampler;
  std::vector<float> logits;
  uint32_t pos = 0;
  Emission emission;
};

struct DrawResult {
  uint64_t id = 0;
  LaneKey lane;
  Drawn drawn;
  seam::v1::Finish finish = seam::v1::FINISH_UNSPECIFIED;
  Status status;  // not ok: nothing has left
};

class SamplingPool {
 public:
  // `news` is called by a thread of the pool when there is something to take.
  SamplingPool(uint32_t n_threads, std::function<void()> news);
  // Nothing leaves any more. Waits for the draws that run.
  ~SamplingPool();
  SamplingPool(const SamplingPool &) = delete;
  SamplingPool & operator=(const SamplingPool &) = delete;

  // The draws of one tick. Their frames leave together, when the last of them is drawn: a batch stays a batch.
  void Submit(std::vector<Draw> draws);
  // Results that were not taken yet. A frame has left before its result is here, and whoever reads of something that
  // the frame caused finds the result here.
  std::vector<DrawResult> Take();
  // The result if there is one already, and the frame has left; otherwise it never will.
  std::optional<DrawResult> Recall(uint64_t id);

 private:
  struct Item {
    Draw draw;
    bool recalled = false;
    DrawResult result;
  };
  struct Tick {
    std::vector<Item> items;
    size_t n_begun = 0;
    size_t n_left = 0;
  };
  using Ticks = std::list<Tick>;

  void Work();
  // With the lock held.
  Ticks::iterator NextTick();
  void Publish(Tick & tick);

  const std::function<void()> news_;
  std::mutex mutex_;  // guards everything below but the item that a thread works on; held while frames are sent
  std::condition_variable work_;
  Ticks ticks_;
  std::vector<DrawResult> done_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace meshnet
