#include "agreement_rows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace meshnet::agreement {
namespace {

struct Shape {
  size_t first = 0;       // index of the largest
  double log_total = 0;   // of exp over all
};

Shape ShapeOf(std::span<const float> row) {
  Shape shape;
  shape.first = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
  const double most = static_cast<double>(row[shape.first]);
  double total = 0;
  for (const float logit : row) total += std::exp(static_cast<double>(logit) - most);
  shape.log_total = most + std::log(total);
  // A NaN anywhere and an infinity at the top both end here.
  if (!std::isfinite(shape.log_total)) throw std::runtime_error("a row of logits is not finite");
  return shape;
}

}  // namespace

RowDistance Compare(std::span<const float> truth, std::span<const float> other) {
  const Shape a = ShapeOf(truth), b = ShapeOf(other);
  double mean = 0;
  for (const float logit : truth) mean += static_cast<double>(logit);
  mean /= static_cast<double>(truth.size());
  double kl = 0, apart = 0, length = 0;
  for (size_t i = 0; i < truth.size(); i++) {
    const double x = static_cast<double>(truth[i]), y = static_cast<double>(other[i]);
    const double log_p = x - a.log_total, log_q = y - b.log_total;
    const double p = std::exp(log_p);
    if (p > 0) kl += p * (log_p - log_q);
    apart += (y - x) * (y - x);
    length += (x - mean) * (x - mean);
  }
  if (length == 0) throw std::runtime_error("a row of the truth is flat: nothing can be held against it");
  // Rounding can leave a divergence of nothing a little below it.
  return {std::max(kl, 0.0), std::sqrt(apart / length), a.first == b.first};
}

void Sums::Add(const RowDistance & row) {
  rows++;
  same_first += row.same_first ? 1 : 0;
  kl += row.kl;
  difference += row.difference;
  max_kl = std::max(max_kl, row.kl);
  max_difference = std::max(max_difference, row.difference);
}

void Sums::Add(const Sums & other) {
  rows += other.rows;
  same_first += other.same_first;
  kl += other.kl;
  difference += other.difference;
  max_kl = std::max(max_kl, other.max_kl);
  max_difference = std::max(max_difference, other.max_difference);
}

}  // namespace meshnet::agreement
