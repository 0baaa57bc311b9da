// Ring: real engines on real shards, joined by sinks in memory in place of seams.
// Threads: the test's thread and those of the engines.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "engine.h"

namespace meshnet {

// Path of the generated model, from the command line.
extern std::string g_model_path;

// What the gateway of one lane has received.
class Gateway final : public FrameSink {
 public:
  void Send(Frame frame) override;
  bool ReserveCredit(uint64_t) override { return true; }
  void Consumed(uint64_t) override {}
  void SendClose() override;

  // The next frame; fails the test after ten seconds.
  Frame Next();
  // Tokens up to the finish, which is checked to be the only one so far.
  struct Answer {
    std::vector<int32_t> tokens;
    seam::v1::Finish finish = seam::v1::FINISH_UNSPECIFIED;
    uint32_t pos = 0;
    std::vector<seam::v1::TokenLogprobs> logprobs;
    Code error = Code::kOk;
  };
  Answer Finish();
  bool WaitClosed();
  size_t n_waiting() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Frame> frames_;
  bool closed_ = false;
};

// Holds whoever passes until it is opened; ten seconds at most.
class Gate {
 public:
  void Pass();
  void WaitForOne();
  void Open();

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool reached_ = false;
  bool open_ = false;
};

struct RingOptions {
  std::vector<int> cuts{};  // layer boundaries between stages; empty: one stage
  uint32_t n_ctx = 512;
  uint32_t n_seq_max = 8;
  uint32_t n_ubatch = 64;
  EngineParams params{};
  seam::v1::DType dtype = seam::v1::DTYPE_F32;
  // Which decodes of a stage are to fail while they compute.
  std::function<bool(uint32_t stage, std::span<const Row>)> give_up{};
  // Puts something between the engine of a stage and what it has loaded.
  std::function<std::unique_ptr<Shard>(uint32_t stage, Shard && loaded)> wrap{};
};

// What the shard of that stage is loaded with, hooks apart.
ShardParams ParamsOf(const RingOptions & options, uint32_t stage);

// Frames that a test may lose or change on their way from one stage to the next.
using Tamper = std::function<bool(uint32_t to_stage, Frame & frame)>;

class Ring {
 public:
  explicit Ring(RingOptions options);
  ~Ring();

  // Admits and joins session `id` on every stage.
  std::shared_ptr<Gateway> Open(int id, uint32_t positions = 96);
  void Turn(int id, const seam::v1::Turn & turn, const std::vector<int32_t> & ids);
  void Cancel(int id, uint32_t turn);
  // The same, where the lane may be gone.
  void CancelIfOpen(int id, uint32_t turn);
  void Close(int id) { engines_.front()->PortClosed(Key(id, 0), Port::kUp); }
  LaneKey Key(int id, uint32_t stage) const;
  Engine & engine(uint32_t stage) { return *engines_[stage]; }
  uint32_t n_stages() const { return static_cast<uint32_t>(engines_.size()); }
  // Waits for the end of the lane at that stage.
  Code WaitEnded(int id, uint32_t stage);
  // Ticks of a stage so far; needs trace_logits.
  std::vector<TickTrace> Ticks(uint32_t stage);
  void SetTamper(Tamper tamper);

 private:
  class Wire;
  struct Ended {
    LaneKey key;
    Code code;
  };

  RingOptions options_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Ended> ended_;
  std::vector<std::vector<TickTrace>> ticks_;
  Tamper tamper_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

seam::v1::Turn MakeTurn(uint32_t number, uint32_t start, size_t n_tokens, uint32_t max_tokens);
// A prompt of `n` ids from a seed.
std::vector<int32_t> Prompt(size_t n, uint32_t seed);

}  // namespace meshnet
