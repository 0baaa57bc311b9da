// EngineCore: the lanes of one shard and the loop's single steps. Engine puts a thread and an inbox in front of it.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode_batch.h"
#include "engine.h"
#include "lane.h"
#include "meter.h"
#include "prefill_pace.h"
#include "sampler.h"
#include "sampler_grammar.h"
#include "sampling_pool.h"
#include "scheduler.h"
#include "tick.h"
#include "trace.h"

namespace meshnet {

class EngineCore final : public LaneEngine {
 public:
  // Told when the engine has ended a lane and cleared its sequence, so that the id may be given out again.
  using Freed = std::function<void(const LaneKey &, uint64_t instance)>;

  // `shard` and `meter` outlive the core. `drawn` is called by another thread when TakeDrawn is to be; without it a
  // tick draws its tokens itself.
  EngineCore(Shard * shard, EngineParams params, EngineObserver observer, Meter * meter, Freed freed,
             std::function<void()> drawn = {});

  // Each of these does nothing when that life of the lane is over.
  void Open(const LaneParams & params, uint64_t instance, int32_t seq);
  void Attach(const LaneKey & key, uint64_t instance, Port port, std::shared_ptr<FrameSink> sink);
  void OnFrame(const LaneKey & key, uint64_t instance, Port from, Frame frame);
  void OnClosed(const LaneKey & key, uint64_t instance, Port from);
  void OnFailed(const LaneKey & key, uint64_t instance, Port from, const Status & why);
  void Extend(const LaneKey & key, uint64_t instance, uint32_t positions);
  void Release(const LaneKey & key, uint64_t instance, const Status & why);
  void EndAll(const Status & why);
  // What the sampling pool has drawn and sent. Whoever has frames for lanes calls this before: what answers a token
  // comes after the token.
  void TakeDrawn();
  // Credit has come for somebody.
  void Unblock();
  // A synthetic bundle through sequence `seq`, which is clear afterwards.
  Status Probe(uint32_t n_tokens, int32_t seq, Engine::ProbeResult * out);

  // Runs one tick if any lane can run. False: nothing to do before WakeUs, or news.
  bool Tick();
  uint64_t WakeUs() const { return wake_us_; }
  uint32_t n_ready() const { return n_ready_; }

  Status Truncate(int32_t seq, int32_t keep) override { return sequences_.Truncate(seq, keep); }
  void Settle(const GroupKey & group) override { book_.Settle(group); }
  void Recall(const LaneKey & key) override;

 private:
  struct Entry {
    Entry(uint64_t id, LaneSpec spec, LaneEngine * host) : instance(id), lane(std::move(spec), host) {}
    uint64_t instance;
    Lane lane;
    std::shared_ptr<Sampler> sampler;
    uint64_t draw = 0;  // at the pool; 0: none
  };

  Entry * Find(const LaneKey & key, uint64_t instance);
  // Runs `step` on the lane; what it returns or throws, if not ok, ends the lane.
  template <typename Step>
  void OnLane(const LaneKey & key, uint64_t instance, Step step);
  // Ends the lane: neighbours first, but not the one at `except`. Ok: an orderly close.
  void End(Entry & entry, const Status & why, std::optional<Port> except, const Frame * original = nullptr);
  // A turn that is over needs no sampler, and a session that is closed no lane.
  void FreeIfDone(Entry & entry);
  void Expire(uint64_t now_us);
  // Who has lanes here, by name: a number for each.
  std::map<std::string_view, uint32_t> Clients() const;
  std::vector<TickLane> Pick(uint64_t now_us);
  // What a tick in which every lane ran has cost.
  void Learn(std::span<const TickLane> lanes, uint64_t start_us, uint64_t took_us);

  Shard * shard_;
  EngineParams params_;
  EngineObserver observer_;
  Meter * meter_;
  Freed freed_;
  Sequences sequences_;
  TokenPieces pieces_;
  std::unique_ptr<SamplingPool> pool_;  // a tail's; uses the pieces
  TickRunner runner_;
  GroupBook book_;
  ClientBook clients_;  // a head's
  RingLoad load_;       // a head's, of the last tick
  bool held_ = false;   // decoders were, in it
  PrefillPace pace_;    // a head's
  DecodeBatch batch_;   // a head's
  std::map<LaneKey, std::unique_ptr<Entry>> lanes_;
  uint64_t next_group_;
  uint64_t wake_us_ = UINT64_MAX;
  uint64_t decode_us_ = 0;  // of the last tick without prefill
  uint32_t n_ready_ = 0;
};

}  // namespace meshnet
