// What the stages of a ring ran: noted between engine and llama.cpp, where a test can also make a mistake.
// Threads: see each class.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine.h"
#include "findings.h"
#include "shard.h"

namespace meshnet {

// Made once, at the first occasion.
enum class Mistake {
  kNone,
  kSwapIds,    // two lanes at equal positions exchange their ids for one decode, which no check of positions can see
  kSkipClear,  // a sequence that holds something is not forgotten
};

// Everything that the engine asked of one shard, in order. Threads: any.
class Recording {
 public:
  struct Step {
    std::optional<int32_t> cleared{};     // a sequence id; otherwise this is a decode
    size_t n_rows = 0;                    // of the decode
    std::vector<std::string> residuals{};  // SHA-256 of the output of each row; a tail has none
  };

  void Add(Step step);
  void Refuse(std::string why);
  std::vector<Step> steps() const;
  // Why decodes were refused.
  std::vector<std::string> refusals() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Step> steps_;
  std::vector<std::string> refusals_;
};

// Threads: as a Shard.
class WatchedShard final : public Shard {
 public:
  // `recording` and `n_mistakes` outlive the shard.
  WatchedShard(Shard && loaded, Recording * recording, Mistake mistake, std::atomic<int> * n_mistakes);

  Status Decode(std::span<const Row> rows, const float * boundary_in) override;
  void Clear(int32_t seq) override;

 private:
  // The rows as a mistaken engine would give them.
  void SwapIds(std::vector<Row> * rows);

  Recording * recording_;
  Mistake mistake_;  // still to be made
  std::atomic<int> * n_mistakes_;
  std::set<int32_t> holding_;  // sequences that hold something
  std::optional<int32_t> skipped_;  // not cleared, and nothing has come of it yet
};

// One row by the session that it was for: sequence ids are each worker's own affair.
struct RanRow {
  std::string session;
  uint32_t turn = 0;
  int32_t pos = 0;
  bool wants_logits = false;
  int32_t sampled = -1;
  std::string digest;  // SHA-256 of what came out: residual stream or logits; empty for other rows of a tail
};
// One decode of a stage, or the end of what it held of a session.
struct RanStep {
  std::string left{};
  std::vector<RanRow> rows{};
};

// The batch composition of one stage, from what its engine traced and what its shard ran.
std::vector<RanStep> Compose(const std::vector<TickTrace> & ticks, const Recording & recording, Findings * findings);

}  // namespace meshnet
