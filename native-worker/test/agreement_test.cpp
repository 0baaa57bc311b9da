// Distances of rows of logits, against values found by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "agreement_rows.h"

namespace meshnet::agreement {
namespace {

using Logits = std::vector<float>;

TEST(Agreement, EqualRowsAreNotApart) {
  const Logits row = {1.5f, -2, 0.25f, 7};
  const RowDistance distance = Compare(row, row);
  EXPECT_EQ(distance.kl, 0);
  EXPECT_EQ(distance.difference, 0);
  EXPECT_TRUE(distance.same_first);
}

TEST(Agreement, DivergesAsByHand) {
  // Distributions (3/4, 1/4) and (1/2, 1/2).
  const Logits truth = {std::log(3.0f), 0}, other = {0, 0};
  EXPECT_NEAR(Compare(truth, other).kl, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
}

TEST(Agreement, AShiftOfAllLogitsMovesTheRowAndNotTheDistribution) {
  const Logits truth = {3, 0, 0}, other = {4, 1, 1};
  const RowDistance distance = Compare(truth, other);
  EXPECT_NEAR(distance.kl, 0, 1e-12);
  // Length of (2, -1, -1) is sqrt 6, of the shift sqrt 3.
  EXPECT_NEAR(distance.difference, std::sqrt(0.5), 1e-12);
}

TEST(Agreement, TellsAnotherFirstChoice) {
  EXPECT_FALSE(Compare(Logits{1, 2, 3}, Logits{3, 2, 1}).same_first);
}

TEST(Agreement, StaysFiniteForLargeLogits) {
  const RowDistance distance = Compare(Logits{10000, -10000, 0}, Logits{9000, -10000, 0});
  EXPECT_NEAR(distance.kl, 0, 1e-12);
}

TEST(Agreement, RefusesRowsThatSayNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_THROW(Compare(Logits{1, nan}, Logits{1, 2}), std::runtime_error);
  EXPECT_THROW(Compare(Logits{1, 2}, Logits{inf, 2}), std::runtime_error);
  EXPECT_THROW(Compare(Logits{2, 2}, Logits{1, 2}), std::runtime_error);
}

TEST(Agreement, AddsUp) {
  Sums text, all;
  text.Add(RowDistance{.kl = 1, .difference = 0.5, .same_first = true});
  text.Add(RowDistance{.kl = 3, .difference = 0.25, .same_first = false});
  all.Add(text);
  all.Add(text);
  EXPECT_EQ(all.rows, 4u);
  EXPECT_EQ(all.same_first, 2u);
  EXPECT_EQ(all.kl, 8);
  EXPECT_EQ(all.max_kl, 3);
  EXPECT_EQ(all.difference, 1.5);
  EXPECT_EQ(all.max_difference, 0.5);
}

}  // namespace
}  // namespace meshnet::agreement
