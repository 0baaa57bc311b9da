// Ledger: who holds which KV cells and sequence ids, and which epochs are over.
// Threads: none of its own; Engine calls it under one mutex and never across a decode.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "port.h"
#include "status.h"

namespace meshnet {

// Cells are granted in whole blocks, so that a little more of a session never needs a new admission.
inline constexpr uint32_t kCellBlock = 32;
// Sessions whose highest epoch is remembered; four times the lanes that any worker can hold.
inline constexpr size_t kMaxRememberedEpochs = 4096;

class Ledger {
 public:
  // What a lane holds. `instance` tells apart two lives of the same key.
  struct Lease {
    uint64_t instance = 0;
    int32_t seq = 0;
    uint32_t cells = 0;
    uint32_t queued = 0;  // frames that wait for the engine
  };

  Ledger(uint32_t cells, uint32_t sequences);

  // kLaneExists, kEpochStale, kLimitExceeded (no positions), kNoCapacity.
  Status Admit(const LaneKey & key, uint32_t positions, Lease * out);
  // Gives a lane the cells for `positions` in all; it never has fewer than before. kLaneNotOpen, kNoCapacity: it keeps
  // what it has.
  Status Extend(const LaneKey & key, uint32_t positions);
  // nullptr: no such lane. Valid until the lane is freed.
  Lease * Find(const LaneKey & key);
  // False when that life of the lane is over already.
  bool Free(const LaneKey & key, uint64_t instance);
  // True when a higher epoch of the session was admitted.
  bool IsStale(const LaneKey & key) const;

  uint32_t cells_total() const { return cells_total_; }
  uint32_t cells_free() const { return cells_free_; }
  uint32_t sequences_total() const { return sequences_total_; }
  uint32_t sequences_free() const { return static_cast<uint32_t>(free_seqs_.size()); }
  uint32_t lanes() const { return static_cast<uint32_t>(leases_.size()); }

 private:
  void Remember(const LaneKey & key);

  struct Epoch {
    uint32_t highest = 0;
    std::list<std::string>::iterator age;
  };

  uint32_t cells_total_;
  uint32_t cells_free_;
  uint32_t sequences_total_;
  std::set<int32_t> free_seqs_;
  std::map<LaneKey, Lease> leases_;
  std::map<std::string, Epoch> epochs_;
  std::list<std::string> ages_;  // the session used least recently comes first
  uint64_t next_instance_ = 1;
};

}  // namespace meshnet
