#include "whole_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine_ring.h"

namespace meshnet {

std::unique_ptr<Shard> WholeModel(uint32_t n_ctx, uint32_t n_ubatch) {
  ShardParams params;
  params.model_path = g_model_path;
  params.n_ctx = n_ctx;
  params.n_seq_max = 8;
  params.n_ubatch = n_ubatch;
  std::unique_ptr<Shard> shard;
  EXPECT_TRUE(Shard::Load(params, &shard).ok());
  return shard;
}

std::vector<int32_t> Greedy(Shard & shard, std::vector<int32_t> ids, size_t n) {
  shard.Clear(0);
  std::vector<int32_t> out;
  const size_t n_vocab = static_cast<size_t>(shard.info().n_vocab);
  for (size_t done = 0; out.size() < n;) {
    const size_t rows = std::min<size_t>(shard.info().n_ubatch, ids.size() - done);
    std::vector<Row> batch;
    for (size_t i = 0; i < rows; i++, done++) {
      batch.push_back({ids[done], static_cast<int32_t>(done), 0, done + 1 == ids.size()});
    }
    EXPECT_TRUE(shard.Decode(batch, nullptr).ok());
    if (done < ids.size()) continue;
    const float * logits = shard.logits(rows - 1);
    out.push_back(static_cast<int32_t>(std::max_element(logits, logits + n_vocab) - logits));
    ids.push_back(out.back());
  }
  return out;
}

}  // namespace meshnet
