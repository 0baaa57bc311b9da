// The engine: dtypes, credit, what it refuses, probes, times. Run with --model PATH, a Llama model of three layers.
#include "engine.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine_ring.h"
#include "whole_model.h"

namespace meshnet {

std::string g_model_path;

namespace {

TEST(Engine, CarriesNarrowBoundaries) {
  for (const auto dtype : {seam::v1::DTYPE_F16, seam::v1::DTYPE_Q8_0}) {
    Ring ring({.cuts = {1, 2}, .dtype = dtype});
    auto gateway = ring.Open(0);
    const auto prompt = Prompt(70, 1);
    ring.Turn(0, MakeTurn(1, 0, prompt.size(), 10), prompt);
    EXPECT_EQ(gateway->Finish().tokens.size(), 10U);
  }
}

TEST(Engine, PrefillWaitsForCreditAndDecodeDoesNot) {
  auto whole = WholeModel();
  // Credit for one chunk: the head must wait for every chunk to be run before it starts the next.
  Ring ring({.cuts = {1, 2}, .params = {.credit_bytes = 64 * 64 * 4}});
  auto gateway = ring.Open(0, 300);
  const auto prompt = Prompt(290, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 8), prompt);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, prompt, 8));
}

TEST(Engine, RefusesWhatItCannotHold) {
  Ring ring({.cuts = {1}, .n_seq_max = 2});
  Engine & head = ring.engine(0);
  LaneParams lane{.key = ring.Key(0, 0), .n_stages = 2, .positions = 300};
  EXPECT_TRUE(head.Admit(lane).ok());
  EXPECT_EQ(head.Admit(lane).code(), Code::kLaneExists);
  lane.key = ring.Key(1, 0);
  EXPECT_EQ(head.Admit(lane).code(), Code::kNoCapacity);
  lane.positions = 0;
  EXPECT_EQ(head.Admit(lane).code(), Code::kLimitExceeded);
  lane.positions = 100;
  lane.key.stage = 1;
  EXPECT_EQ(head.Admit(lane).code(), Code::kRangeMismatch);
  lane.key.stage = 0;
  lane.decode_dtype = seam::v1::DTYPE_UNSPECIFIED;
  EXPECT_EQ(head.Admit(lane).code(), Code::kDtypeInvalid);
  lane.decode_dtype = seam::v1::DTYPE_F32;
  lane.key.epoch = 5;
  EXPECT_TRUE(head.Admit(lane).ok());
  head.Release(lane.key, {});
  lane.key.epoch = 4;
  EXPECT_EQ(head.Admit(lane).code(), Code::kEpochStale);
  EXPECT_EQ(head.Deliver(lane.key, Port::kUp, Frame()).code(), Code::kEpochStale);
  head.Drain();
  lane.key.epoch = 6;
  EXPECT_EQ(head.Admit(lane).code(), Code::kDraining);
}

TEST(Engine, ProbesGiveEqualDigestsAndLeaveNothing) {
  Ring ring({.cuts = {1, 2}});
  for (uint32_t stage = 0; stage < 3; stage++) {
    Engine::ProbeResult a;
    Engine::ProbeResult b;
    ASSERT_TRUE(ring.engine(stage).Probe(20, 10000, &a).ok());
    ASSERT_TRUE(ring.engine(stage).Probe(20, 10000, &b).ok());
    EXPECT_EQ(a.output_digest, b.output_digest);
    EXPECT_EQ(a.output_digest.size(), 32U);
    EXPECT_EQ(ring.engine(stage).Probe(0, 10000, &a).code(), Code::kLimitExceeded);
    EXPECT_EQ(ring.engine(stage).Stats().sequences_free, 8U);
  }
}

TEST(Engine, ReportsTheTimesOfEveryStage) {
  Ring ring({.cuts = {1, 2}});
  auto gateway = ring.Open(0);
  const auto prompt = Prompt(10, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 2), prompt);
  EXPECT_EQ(gateway->Next().times_size(), 3);
  EXPECT_EQ(gateway->Next().times_size(), 3);
  EXPECT_EQ(ring.engine(0).Stats().tokens_prefilled, 10U);
  EXPECT_EQ(ring.engine(0).Stats().tokens_decoded, 1U);
}

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i++) {
    if (std::strcmp(argv[i], "--model") == 0) meshnet::g_model_path = argv[i + 1];
  }
  return RUN_ALL_TESTS();
}
