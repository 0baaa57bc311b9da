// Stand: one lane at one place of a route, with sinks and an engine that take notes; a test plays what is around it.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lane.h"

namespace meshnet {

constexpr uint32_t kWidth = 4;
constexpr int32_t kVocab = 100;

// One line for each thing that a lane did, on any port, in order.
using Log = std::vector<std::string>;

class Sink final : public FrameSink {
 public:
  Sink(Log * log, std::string name) : log_(log), name_(std::move(name)) {}
  void Send(Frame frame) override;
  bool ReserveCredit(uint64_t bytes) override;
  void Consumed(uint64_t bytes) override { consumed += bytes; }
  void SendClose() override { log_->push_back(name_ + ": close"); }
  uint32_t MaxChunkTokens() const override { return max_chunk; }

  uint64_t credit = UINT64_MAX;
  uint64_t consumed = 0;
  uint32_t max_chunk = UINT32_MAX;

 private:
  Log * log_;
  std::string name_;
};

class Host final : public LaneEngine {
 public:
  explicit Host(Log * log) : log_(log) {}
  Status Truncate(int32_t seq, int32_t keep) override;
  void Settle(const GroupKey & group) override { settled.push_back(group.number); }
  void Recall(const LaneKey &) override {
    if (on_recall) on_recall();
  }

  int32_t min_rewind = 0;
  std::vector<uint64_t> settled;
  std::function<void()> on_recall;

 private:
  Log * log_;
};

struct Stand {
  // 32 positions, chunks of eight rows.
  Stand(bool head, bool tail, uint32_t n_stages, uint32_t stage);

  // Frames that come in, from the stage before unless a port is named.
  Status In(Port port, Frame frame) { return lane->OnFrame(port, std::move(frame), now); }
  Status Turn(uint32_t number, uint32_t start, uint32_t n, uint32_t branch = 0, uint32_t max_tokens = 5);
  Status Ids(uint32_t number, uint32_t n, bool last = true);
  Status Cancel(uint32_t number);
  Status Activation(seam::v1::Phase phase, uint32_t pos, uint32_t n, uint32_t branch, bool end = true);
  // One token, or none where it is negative.
  Status Loop(Port port, uint32_t pos, int32_t token, uint32_t branch,
              seam::v1::Finish finish = seam::v1::FINISH_UNSPECIFIED);
  // Runs what is ready, as the engine would; a tail draws `token`, and 2 is the one that ends an answer.
  void Run(int32_t token = -1);
  // What was noted since the last call.
  Log Take() { return std::exchange(log, {}); }

  Log log;
  Host host;
  std::shared_ptr<Sink> up = std::make_shared<Sink>(&log, "up");
  std::shared_ptr<Sink> down = std::make_shared<Sink>(&log, "down");
  std::shared_ptr<Sink> loop = std::make_shared<Sink>(&log, "loop");
  std::unique_ptr<Lane> lane;
  uint64_t now = 1000;
  int32_t last_input = -1;
};

struct Head : Stand {
  explicit Head(uint32_t n_stages = 2) : Stand(true, n_stages == 1, n_stages, 0) {}
};
struct Middle : Stand {
  Middle() : Stand(false, false, 3, 1) {}
};
struct Tail : Stand {
  explicit Tail(uint32_t n_stages = 2) : Stand(false, true, n_stages, n_stages - 1) {}
};

}  // namespace meshnet
