// The whole model in one shard: what rings of shards are held against.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shard.h"

namespace meshnet {

// Of the generated model, with eight sequences.
std::unique_ptr<Shard> WholeModel(uint32_t n_ctx = 512, uint32_t n_ubatch = 64);

// Greedy continuation of `ids` by `n` tokens, prefill in chunks of n_ubatch.
std::vector<int32_t> Greedy(Shard & shard, std::vector<int32_t> ids, size_t n);

}  // namespace meshnet
