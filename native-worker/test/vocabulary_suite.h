// VocabularySuite: what tests of drawing begin with: the model's vocabulary, its pieces, and random logits for it.
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "sampler.h"
#include "shard.h"

namespace meshnet {

class VocabularySuite : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  static int32_t n_vocab() { return shard_->info().n_vocab; }
  static std::vector<float> Logits(uint32_t seed);

  // One suite at a time.
  static std::unique_ptr<Shard> shard_;
  static std::unique_ptr<TokenPieces> pieces_;
};

}  // namespace meshnet
