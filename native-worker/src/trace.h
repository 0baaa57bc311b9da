// Sequences, TickTrace recording: every change of a sequence goes through here, so that a trace has them in order.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine.h"
#include "shard.h"

namespace meshnet {

// SHA-256, 32 bytes, of the values as they lie in memory (little endian f32).
std::string Sha256(std::span<const float> values);

class Sequences {
 public:
  Sequences(Shard * shard, bool trace) : shard_(shard), trace_(trace) {}

  // Keeps positions [0, keep), from the sequence's next decode on: every stage then forgets them between the same two
  // decodes, and so lays its cells out alike. kRewindLost.
  Status Truncate(int32_t seq, int32_t keep);
  // The sequence is about to be decoded. kRewindLost.
  Status Apply(int32_t seq);
  void Clear(int32_t seq);
  // What happened since the last call, oldest first; nothing unless tracing.
  std::vector<TraceOp> TakeOperations();

 private:
  void Record(int32_t seq, int32_t keep);

  Shard * shard_;
  bool trace_;
  std::vector<TraceOp> operations_;
  std::map<int32_t, int32_t> wanted_;  // positions to keep, by sequence
};

}  // namespace meshnet
