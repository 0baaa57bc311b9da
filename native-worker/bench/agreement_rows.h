// How far two rows of logits over one vocabulary are apart, and sums of it over many rows. Everything in f64.
// Threads: values; no state is shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace meshnet::agreement {

struct RowDistance {
  double kl = 0;          // KL(truth || other) of the next-token distributions, nats
  double difference = 0;  // |other - truth| / |truth - its mean|, Euclidean
  bool same_first = false;  // the largest logit is the same token's
};

// REQUIRES rows of one size, not empty. Throws std::runtime_error for a row that is not finite
// and for a flat truth.
RowDistance Compare(std::span<const float> truth, std::span<const float> other);

struct Sums {
  uint64_t rows = 0, same_first = 0;
  double kl = 0, max_kl = 0, difference = 0, max_difference = 0;

  void Add(const RowDistance & row);
  void Add(const Sums & other);
};

}  // namespace meshnet::agreement
