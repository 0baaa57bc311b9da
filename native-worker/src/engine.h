// Engine: the one thread that owns the llama_context, and the lanes that live in it.
// Threads: public methods may be called from any thread and never wait for a decode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "port.h"
#include "shard.h"
#include "status.h"

namespace meshnet {

struct EngineParams {
  uint32_t group_wait_us = 1000;      // how long a later stage waits for the missing lanes of a head group
  uint32_t step_deadline_ms = 30000;  // head: a step's way round the ring; later stages: an unfinished chunk
  uint32_t max_queued_frames = 256;   // per lane, prefill payload apart (credit bounds that)
  uint64_t credit_bytes = 0;          // initial prefill credit of an incoming stream; 0 = two full chunks in f32
  uint32_t sampling_threads = 1;      // of a tail, kMaxSamplingThreads at most; 0: tokens are drawn between ticks
  bool trace_logits = false;
  // Head: one group on its way at a time, with every lane that can run. All stages then run the same batches in the
  // same order, which a comparison bit by bit needs; it throws the pipeline away.
  bool lockstep = false;
};

// What a session asked of this stage.
struct LaneParams {
  LaneKey key;
  uint32_t n_stages = 1;
  uint32_t positions = 0;
  meshnet::seam::v1::DType prefill_dtype = meshnet::seam::v1::DTYPE_F32;
  meshnet::seam::v1::DType decode_dtype = meshnet::seam::v1::DTYPE_F32;
  std::string client{};  // who asked for the session, at the head; lanes of equal clients share one turn
};

// Snapshot for Describe and Report. Counters grow for the life of the process.
struct EngineStats {
  uint32_t cells_total = 0, cells_free = 0, sequences_total = 0, sequences_free = 0;
  uint32_t lanes = 0, queue_depth = 0;
  uint64_t ticks = 0, tokens_decoded = 0, tokens_prefilled = 0;
  uint64_t stale_frames = 0;                         // of a branch or turn that was over
  uint32_t decode_tick_us = 0, prefill_tick_us = 0;  // medians of recent ticks
  float batch_size = 0;                              // mean of recent decode ticks
};

struct TraceRow {
  LaneKey key;
  int32_t seq = 0;
  int32_t pos = 0;
  std::string logits_sha256;  // empty: the row asked for no logits
  int32_t sampled = -1;
  uint32_t turn = 0;
};
struct TraceOp {
  int32_t seq = 0;
  int32_t keep = 0;  // positions kept; 0 = clear
};
struct TickTrace {
  uint64_t tick = 0;
  std::vector<TraceRow> rows;
  std::vector<TraceOp> operations;  // before this tick, in order
};

// Called on the engine thread; must not block.
struct EngineObserver {
  std::function<void(const LaneKey &, const Status &)> lane_ended;  // ok: orderly close
  std::function<void(const TickTrace &)> tick;                      // with trace_logits only
};

class Engine {
 public:
  Engine(std::unique_ptr<Shard> shard, EngineParams params, EngineObserver observer);
  ~Engine();  // stops the thread; lanes end with kWorkerLost

  const ShardInfo & shard_info() const;
  uint64_t initial_credit() const;
  EngineStats Stats() const;

  // Reserves cells for `positions` and a sequence id. kNoCapacity (message names required and available), kLaneExists,
  // kEpochStale (a higher epoch of the session is known), kLimitExceeded.
  Status Admit(const LaneParams & params);
  // Gives a lane more positions: `positions` in all, for turns that are delivered after this. kLaneNotOpen,
  // kNoCapacity: nothing has changed.
  Status Extend(const LaneKey & key, uint32_t positions);
  // Ends the lane and frees what it holds. Other stages are told by an Error frame kCancelled when a turn was running.
  void Release(const LaneKey & key, const Status & why);

  // Ports are attached when a stream is open, and replaced when a higher attempt reconnects. kLaneNotOpen.
  Status Attach(const LaneKey & key, Port port, std::shared_ptr<FrameSink> sink);
  // A frame that the seam has checked against the wire rules (sizes, seq, shape, lane), in order per stream.
  // kLaneNotOpen, kResourceExhausted (queue full): the seam answers with an Error frame. What comes for a lane that is
  // being released is dropped.
  Status Deliver(const LaneKey & key, Port from, Frame frame);
  // The other side closed in order: no more frames from it.
  void PortClosed(const LaneKey & key, Port port);
  // The stream broke, or its peer broke the rules: the lane ends with `why`, told to every other port.
  void PortFailed(const LaneKey & key, Port port, const Status & why);
  // Credit has come for some sink.
  void Wake();

  // A synthetic bundle of n_tokens through the shard on a spare sequence; waits at most deadline_ms.
  struct ProbeResult {
    uint32_t prefill_us = 0, decode_us = 0;
    std::string output_digest;  // SHA-256 of the output, f32
  };
  Status Probe(uint32_t n_tokens, uint32_t deadline_ms, ProbeResult * out);

  // No new lanes.
  void Drain();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshnet
