#include "vocabulary_suite.h"

#include <random>

#include "engine_ring.h"

namespace meshnet {

std::unique_ptr<Shard> VocabularySuite::shard_;
std::unique_ptr<TokenPieces> VocabularySuite::pieces_;

void VocabularySuite::SetUpTestSuite() {
  ShardParams params;
  params.model_path = g_model_path;
  params.n_ctx = 64;
  ASSERT_TRUE(Shard::Load(params, &shard_).ok());
  pieces_ = std::make_unique<TokenPieces>(shard_->vocab());
}

void VocabularySuite::TearDownTestSuite() {
  pieces_.reset();
  shard_.reset();
}

std::vector<float> VocabularySuite::Logits(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(static_cast<size_t>(n_vocab()));
  for (float & logit : logits) logit = normal(random);
  return logits;
}

}  // namespace meshnet
