// A chain of shards in one process that replays a script and compares every row of logits bit by bit.
// Threads: one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parity_script.h"

namespace meshnet {

// A fault that a test puts into the last shard, to prove that the comparison sees it.
enum class Fault { kNone, kSwapSeq, kSkipClear };

struct Difference {
  int64_t n_rows = 0;       // rows of logits compared
  int64_t n_different = 0;
  float max_abs = 0;
  std::string first;        // where, for people
};

class Chain {
 public:
  // cuts: ascending layers inside of (0, n_layer). With sparse_dir, each shard loads a copy of the file that holds
  // the header and the shard's own tensors, and holes elsewhere.
  static Status Load(const ShardParams & params, int32_t n_layer, const std::vector<int32_t> & cuts,
                     const std::string & sparse_dir, std::unique_ptr<Chain> * out);

  // Stops at the first failing decode, with its Status in `difference->first`.
  void Replay(const Script & script, Fault fault, Difference * difference);

  // Continues the prompt greedily and prints the lines that meshnet-reference prints for each row of logits.
  Status Greedy(std::vector<int32_t> prompt, int32_t n_predict);

 private:
  Status Decode(const std::vector<Row> & rows, Fault fault);
  int32_t LocalSeq(size_t shard, int32_t seq) const;

  std::vector<std::unique_ptr<Shard>> shards_;
};

// Writes to `target` a file as long as `source` that holds its header and the tensors of layers [first, last).
Status WriteSparse(const std::string & source, const std::string & target, int32_t first, int32_t last, int32_t n_layer);

}  // namespace meshnet
