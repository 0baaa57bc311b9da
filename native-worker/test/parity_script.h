// A seeded scenario of many sequences, recorded once on the whole model and replayed on chains of shards.
// Threads: one.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "shard.h"

namespace meshnet {

struct ClearOp {
  int32_t seq;
};
struct TruncateOp {
  int32_t seq, pos;
};
struct DecodeOp {
  std::vector<Row> rows;
  // The whole model's logits, [n_vocab] for each row that wants them, in row order.
  std::vector<std::vector<float>> logits;
};
using Op = std::variant<ClearOp, TruncateOp, DecodeOp>;

struct ScriptParams {
  uint64_t seed = 1;
  int32_t n_seq = 5;       // sequence 0 decodes greedily to the end, the others join, rewind and leave
  int32_t n_greedy = 64;   // tokens of sequence 0
  int32_t max_prompt = 40;
  int32_t chunk = 12;      // prefill rows of one decode, beside the decoding sequences
};

struct Script {
  std::vector<Op> ops;
  std::vector<int32_t> greedy;  // what sequence 0 said
  int64_t n_rows = 0, n_logits = 0, n_joins = 0, n_leaves = 0, n_rewinds = 0, n_mixed = 0;
};

// Runs the scenario on the whole model. REQUIRES n_seq <= n_seq_max and room for every sequence.
Status Record(Shard & whole, const ScriptParams & params, Script * out);

int32_t Argmax(const float * logits, int32_t n);

}  // namespace meshnet
