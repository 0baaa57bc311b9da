#include "ledger.h"

#include <gtest/gtest.h>

namespace meshnet {
namespace {

LaneKey Key(int session, uint32_t epoch = 1) { return {std::string(15, 'x') + static_cast<char>(session), epoch, 0}; }

TEST(Ledger, GrantsWholeBlocksUntilTheyAreGone) {
  Ledger ledger(128, 8);
  Ledger::Lease a;
  Ledger::Lease b;
  ASSERT_TRUE(ledger.Admit(Key(1), 33, &a).ok());
  EXPECT_EQ(a.cells, 64U);
  ASSERT_TRUE(ledger.Admit(Key(2), 64, &b).ok());
  EXPECT_NE(a.seq, b.seq);
  EXPECT_EQ(ledger.cells_free(), 0U);
  Ledger::Lease c;
  EXPECT_EQ(ledger.Admit(Key(3), 1, &c).code(), Code::kNoCapacity);
  EXPECT_TRUE(ledger.Free(Key(1), a.instance));
  EXPECT_TRUE(ledger.Admit(Key(3), 1, &c).ok());
  EXPECT_EQ(ledger.cells_free(), 32U);
}

TEST(Ledger, RunsOutOfSequenceIds) {
  Ledger ledger(1 << 20, 2);
  Ledger::Lease lease;
  ASSERT_TRUE(ledger.Admit(Key(1), 1, &lease).ok());
  ASSERT_TRUE(ledger.Admit(Key(2), 1, &lease).ok());
  EXPECT_EQ(ledger.Admit(Key(3), 1, &lease).code(), Code::kNoCapacity);
}

TEST(Ledger, GivesALaneMoreCellsWhileThereAreSome) {
  Ledger ledger(128, 8);
  Ledger::Lease a;
  Ledger::Lease b;
  ASSERT_TRUE(ledger.Admit(Key(1), 33, &a).ok());
  ASSERT_TRUE(ledger.Admit(Key(2), 32, &b).ok());
  EXPECT_TRUE(ledger.Extend(Key(1), 64).ok());
  EXPECT_EQ(ledger.cells_free(), 32U);
  EXPECT_TRUE(ledger.Extend(Key(1), 20).ok());
  EXPECT_EQ(ledger.cells_free(), 32U);
  EXPECT_EQ(ledger.Extend(Key(1), 97).code(), Code::kNoCapacity);
  EXPECT_EQ(ledger.cells_free(), 32U);
  EXPECT_TRUE(ledger.Extend(Key(1), 96).ok());
  EXPECT_EQ(ledger.cells_free(), 0U);
  EXPECT_EQ(ledger.Extend(Key(3), 1).code(), Code::kLaneNotOpen);
  EXPECT_TRUE(ledger.Free(Key(1), a.instance));
  EXPECT_EQ(ledger.cells_free(), 96U);
}

TEST(Ledger, TellsTwoLivesOfAKeyApart) {
  Ledger ledger(64, 2);
  Ledger::Lease first;
  Ledger::Lease second;
  ASSERT_TRUE(ledger.Admit(Key(1), 1, &first).ok());
  EXPECT_EQ(ledger.Admit(Key(1), 1, &second).code(), Code::kLaneExists);
  ASSERT_TRUE(ledger.Free(Key(1), first.instance));
  ASSERT_TRUE(ledger.Admit(Key(1), 1, &second).ok());
  EXPECT_FALSE(ledger.Free(Key(1), first.instance));
  EXPECT_NE(ledger.Find(Key(1)), nullptr);
}

TEST(Ledger, FencesOutLowerEpochs) {
  Ledger ledger(1024, 8);
  Ledger::Lease lease;
  ASSERT_TRUE(ledger.Admit(Key(1, 3), 1, &lease).ok());
  EXPECT_EQ(ledger.Admit(Key(1, 2), 1, &lease).code(), Code::kEpochStale);
  EXPECT_TRUE(ledger.IsStale(Key(1, 2)));
  EXPECT_FALSE(ledger.IsStale(Key(1, 3)));
  EXPECT_TRUE(ledger.Admit(Key(1, 4), 1, &lease).ok());
  EXPECT_TRUE(ledger.IsStale(Key(1, 3)));
  EXPECT_FALSE(ledger.IsStale(Key(2, 0)));
}

TEST(Ledger, ForgetsTheOldestSessionsFirst) {
  Ledger ledger(1024, 8);
  Ledger::Lease lease;
  const auto admit = [&](size_t i) {
    LaneKey key{std::to_string(i), 9, 0};
    ASSERT_TRUE(ledger.Admit(key, 1, &lease).ok());
    ASSERT_TRUE(ledger.Free(key, lease.instance));
  };
  for (size_t i = 0; i < kMaxRememberedEpochs; i++) admit(i);
  admit(0);  // used again: not the oldest any more
  admit(kMaxRememberedEpochs);
  EXPECT_TRUE(ledger.IsStale({"0", 1, 0}));
  EXPECT_FALSE(ledger.IsStale({"1", 1, 0}));
  EXPECT_TRUE(ledger.IsStale({"2", 1, 0}));
}

}  // namespace
}  // namespace meshnet
