// TickSizes: which tick a head puts together by what such ticks have taken.
#include "tick_sizes.h"

#include <gtest/gtest.h>

namespace meshnet {
namespace {

TEST(TickSizes, PicksTheLargestThatIsKnownToBeShortEnough) {
  TickSizes sizes;
  sizes.Ran(8, 47'000);
  sizes.Ran(12, 51'000);
  sizes.Ran(16, 56'000);
  EXPECT_EQ(sizes.Largest(8, 52'000), 12U);
  EXPECT_EQ(sizes.Largest(8, 60'000), 16U);
  EXPECT_EQ(sizes.Largest(8, 50'000), 8U);  // what was asked for is not made smaller
  EXPECT_EQ(sizes.Largest(12, 50'000), 12U);
}

TEST(TickSizes, FindsTheFewestRowsThatAreCheapEnough) {
  TickSizes sizes;
  EXPECT_EQ(sizes.Fewest(2, 7'000), kMaxMeasuredRows);
  sizes.Ran(8, 47'000);
  sizes.Ran(12, 51'000);
  sizes.Ran(16, 56'000);
  EXPECT_EQ(sizes.Fewest(2, 7'000), 10U);
  EXPECT_EQ(sizes.Fewest(2, 8'000), 6U);
  EXPECT_EQ(sizes.Fewest(2, 3'000), kMaxMeasuredRows);
  EXPECT_EQ(sizes.Fewest(9, 20'000), 3U);
}

TEST(TickSizes, TriesTheSizeAboveOnceInAWhile) {
  TickSizes sizes;
  uint32_t trials = 0;
  for (uint64_t i = 0; i < 10 * kMeasuredTicks; i++) {
    const uint32_t rows = sizes.Largest(8, 50'000);
    if (rows != 8) {
      EXPECT_EQ(rows, 12U);
      trials++;
    }
    sizes.Ran(rows, rows == 8 ? 47'000 : 60'000);
  }
  EXPECT_GE(trials, 9U);
  EXPECT_LE(trials, 10U);
  EXPECT_EQ(sizes.Largest(kMaxMeasuredRows, 90'000), kMaxMeasuredRows);
}

TEST(TickSizes, FollowsACostThatFallsAndNotOneThatIsDisturbed) {
  TickSizes sizes;
  sizes.Ran(12, 80'000);
  EXPECT_EQ(sizes.Largest(8, 53'000), 8U);
  for (int i = 0; i < 12; i++) sizes.Ran(12, 51'000);
  EXPECT_EQ(sizes.Largest(8, 53'000), 12U);
  sizes.Ran(12, 80'000);
  EXPECT_EQ(sizes.Largest(8, 57'000), 12U);
  for (int i = 0; i < 50; i++) sizes.Ran(12, 80'000);
  EXPECT_EQ(sizes.Largest(8, 57'000), 8U);
}

TEST(TickSizes, TellsWhatOtherSizesTake) {
  TickSizes sizes;
  EXPECT_TRUE(sizes.empty());
  sizes.Ran(8, 40'000);
  EXPECT_DOUBLE_EQ(sizes.Us(4), 20'000);
  EXPECT_DOUBLE_EQ(sizes.Us(16), 80'000);
  sizes.Ran(16, 48'000);
  EXPECT_DOUBLE_EQ(sizes.Us(12), 44'000);
  EXPECT_DOUBLE_EQ(sizes.Us(24), 56'000);
  EXPECT_DOUBLE_EQ(sizes.RowUs(8), 5'000);
  EXPECT_DOUBLE_EQ(sizes.RowUs(64), 3'000);
  // One that was disturbed is not worse than several smaller ones.
  sizes.Ran(32, 400'000);
  EXPECT_DOUBLE_EQ(sizes.Us(32), 96'000);
}

TEST(TickSizes, GuessesNoSizeBeyondByOneThatTakesNoLongerThanASmallerOne) {
  TickSizes sizes;
  sizes.Ran(12, 62'500);
  sizes.Ran(16, 56'000);
  EXPECT_DOUBLE_EQ(sizes.Us(32), 112'000);
}

TEST(TickSizes, IsNotAgedByRemainders) {
  TickSizes sizes;
  sizes.Ran(16, 56'000);
  for (uint64_t i = 0; i <= 2 * kMeasuredTicks; i++) sizes.Ran(5, 30'000);
  sizes.Ran(4, 22'000);
  EXPECT_EQ(sizes.LargestKnown(), 16U);
  EXPECT_DOUBLE_EQ(sizes.Us(16), 56'000);
}

TEST(TickSizes, ForgetsASizeThatWasNotUsedForLong) {
  TickSizes sizes;
  sizes.Ran(8, 62'000);  // at the end of a long prompt
  for (uint64_t i = 0; i < kMeasuredTicks; i++) sizes.Ran(16, 56'000);  // the next one
  EXPECT_DOUBLE_EQ(sizes.Us(8), 62'000);
  sizes.Ran(16, 56'000);
  EXPECT_DOUBLE_EQ(sizes.Us(8), 28'000);
  EXPECT_EQ(sizes.LargestKnown(), 16U);
}

TEST(TickSizes, JudgesASizeInUseByNoneThatIsOutdated) {
  TickSizes sizes;
  sizes.Ran(8, 10'000);
  for (uint64_t i = 0; i <= kMeasuredTicks; i++) sizes.Ran(24, 82'000);
  EXPECT_DOUBLE_EQ(sizes.Us(24), 82'000);
  sizes.Ran(3, 9'000);  // nor by a remainder
  EXPECT_DOUBLE_EQ(sizes.Us(24), 82'000);
}

}  // namespace
}  // namespace meshnet
