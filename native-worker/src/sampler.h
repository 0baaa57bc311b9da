// Sampler: draws the tokens of one turn from raw logits, by llama.cpp's own samplers.
// Threads: one at a time; one sampler per turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "emission.h"
#include "sampler_grammar.h"
#include "port.h"
#include "status.h"

namespace meshnet {

class Sampler {
 public:
  // `pieces` outlives the sampler; `positions` bounds what a turn can generate. REQUIRES a turn that CheckTurn let
  // pass. kGrammarInvalid.
  static Status Create(const seam::v1::Turn & turn, uint32_t positions, TokenPieces * pieces,
                       std::unique_ptr<Sampler> * out);
  ~Sampler();

  // Draws the token for position `pos` and accepts it. A pure function of the logits, the turn, the tokens drawn so
  // far, and (seed, pos). kValueInvalid (logits not finite), kGrammarInvalid (no token fits, or the grammar has become
  // too costly).
  Status Draw(std::span<const float> logits, uint32_t pos, Drawn * out);
  // A draw takes no longer than handing the logits to another thread.
  bool quick() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Log-softmax of the raw logits for `token` and the `n_top` likeliest.
seam::v1::TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, uint32_t n_top);

}  // namespace meshnet
