// Rings with something wrong in them: bad values, frames lost or changed, lanes that go at any time.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "engine_ring.h"
#include "whole_model.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_MAX_TOKENS;

TEST(Engine, OneBadLaneDisturbsNoOther) {
  auto whole = WholeModel();
  Ring ring({.cuts = {1}, .n_ctx = 1024});
  const LaneKey bad = ring.Key(1, 1);
  ring.SetTamper([&](uint32_t to, Frame & frame) {
    if (to == 1 && frame.phase() == seam::v1::PHASE_DECODE && frame.pos() == 35) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      // Only the second lane decodes at that position.
      std::memcpy(frame.mutable_tensors(0)->mutable_data()->data(), &nan, sizeof nan);
    }
    return true;
  });
  std::vector<std::shared_ptr<Gateway>> gateways;
  for (int id = 0; id < 3; id++) {
    gateways.push_back(ring.Open(id, 80));
    const auto prompt = Prompt(id == 1 ? 30 : 50, static_cast<uint32_t>(id));
    ring.Turn(id, MakeTurn(1, 0, prompt.size(), 20), prompt);
  }
  EXPECT_EQ(gateways[1]->Finish().error, Code::kValueInvalid);
  EXPECT_EQ(ring.WaitEnded(1, 0), Code::kValueInvalid);
  EXPECT_EQ(ring.WaitEnded(1, 1), Code::kValueInvalid);
  EXPECT_EQ(gateways[0]->Finish().finish, FINISH_MAX_TOKENS);
  EXPECT_EQ(gateways[2]->Finish().finish, FINISH_MAX_TOKENS);
  EXPECT_EQ(ring.engine(1).Deliver(bad, Port::kUp, Frame()).code(), Code::kLaneNotOpen);
}

TEST(Engine, ManySessionsComeAndGoInAnyOrder) {
  const uint32_t seed = 20;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  auto whole = WholeModel();
  Ring ring({.cuts = {1, 2}, .n_ctx = 1024});
  std::vector<std::shared_ptr<Gateway>> gateways(64);
  for (int id = 0; id < 64; id++) {
    // Never more than eight lanes: the one that started eight before is over by now, one way or the other.
    if (id >= 8) {
      for (uint32_t stage = 0; stage < 3; stage++) ring.engine(stage).Release(ring.Key(id - 8, stage), {});
    }
    gateways[static_cast<size_t>(id)] = ring.Open(id, 100);
    const auto prompt = Prompt(1 + random() % 60, seed);
    auto turn = MakeTurn(1, 0, prompt.size(), 30);
    if (id % 2 == 1) turn.mutable_sampling()->set_temperature(1);  // drawn beside the next tick
    ring.Turn(id, turn, prompt);
    const int other = id - static_cast<int>(random() % 8);
    uint32_t stage_of_release = 0;
    if (other < 0) continue;
    switch (random() % 4) {
      case 0:
        ring.CancelIfOpen(other, 1);
        break;
      case 1:
        ring.Close(other);
        break;
      case 2:
        stage_of_release = static_cast<uint32_t>(random() % 3);
        ring.engine(stage_of_release).Release(ring.Key(other, stage_of_release), {});
        break;
      default:
        ring.engine(1).PortFailed(ring.Key(other, 1), Port::kDown, {Code::kStreamEnded, "cut"});
        break;
    }
  }
  for (int id = 0; id < 64; id++) {
    for (uint32_t stage = 0; stage < 3; stage++) ring.engine(stage).Release(ring.Key(id, stage), {});
  }
  for (uint32_t stage = 0; stage < 3; stage++) {
    const auto stats = ring.engine(stage).Stats();
    EXPECT_EQ(stats.lanes, 0U);
    EXPECT_EQ(stats.cells_free, stats.cells_total);
  }
  const auto prompt = Prompt(50, 9);
  auto gateway = ring.Open(70);
  ring.Turn(70, MakeTurn(1, 0, prompt.size(), 10), prompt);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, prompt, 10));
}

TEST(Engine, RefusesFramesThatBreakTheRules) {
  struct Case {
    Code code;
    Tamper tamper;
  };
  const auto decode = [](const Frame & f) { return f.phase() == seam::v1::PHASE_DECODE; };
  const auto loop = [](const Frame & f) { return f.phase() == seam::v1::PHASE_LOOP; };
  const std::vector<Case> cases = {
      {Code::kPositionInvalid,
       [&](uint32_t, Frame & f) {
         if (decode(f)) f.set_pos(f.pos() + 1);
         return true;
       }},
      {Code::kBranchStale,
       [&](uint32_t, Frame & f) {
         if (decode(f)) f.set_branch(9);
         return true;
       }},
      {Code::kDtypeInvalid,
       [&](uint32_t, Frame & f) {
         if (decode(f)) f.mutable_tensors(0)->set_dtype(seam::v1::DTYPE_F16);
         return true;
       }},
      {Code::kShapeInvalid,
       [&](uint32_t, Frame & f) {
         if (decode(f)) f.mutable_tensors(0)->set_name("x");
         return true;
       }},
      {Code::kSizeMismatch,
       [&](uint32_t, Frame & f) {
         if (decode(f)) f.mutable_tensors(0)->mutable_data()->pop_back();
         return true;
       }},
      {Code::kPositionInvalid,
       [&](uint32_t, Frame & f) {
         if (loop(f)) f.set_pos(f.pos() + 1);
         return true;
       }},
      {Code::kTokenInvalid,
       [&](uint32_t, Frame & f) {
         if (loop(f)) f.set_tokens(0, -1);
         return true;
       }},
      {Code::kMalformed,
       [&](uint32_t, Frame & f) {
         if (loop(f)) f.clear_tokens();
         return true;
       }},
  };
  Ring ring({.cuts = {1}});
  int id = 0;
  for (const Case & c : cases) {
    ring.SetTamper(c.tamper);
    auto gateway = ring.Open(id);
    const auto prompt = Prompt(10, 1);
    ring.Turn(id, MakeTurn(1, 0, prompt.size(), 20), prompt);
    EXPECT_EQ(gateway->Finish().error, c.code) << "case " << id;
    for (uint32_t stage = 0; stage < 2; stage++) EXPECT_EQ(ring.WaitEnded(id, stage), c.code) << "case " << id;
    id++;
  }
}

TEST(Engine, TimesOutWhenAFrameIsLost) {
  for (const auto phase : {seam::v1::PHASE_DECODE, seam::v1::PHASE_LOOP, seam::v1::PHASE_PREFILL}) {
    Ring ring({.cuts = {1}, .params = {.step_deadline_ms = 200}});
    ring.SetTamper([&](uint32_t, Frame & frame) { return frame.phase() != phase; });
    auto gateway = ring.Open(0);
    const auto prompt = Prompt(10, 1);
    ring.Turn(0, MakeTurn(1, 0, prompt.size(), 20), prompt);
    EXPECT_EQ(gateway->Finish().error, Code::kSeamTimeout);
    EXPECT_EQ(ring.WaitEnded(0, 1), Code::kSeamTimeout);
  }
}

TEST(Engine, DropsFramesOfALowerBranchSilently) {
  auto whole = WholeModel();
  Ring ring({.cuts = {1}});
  auto gateway = ring.Open(0);
  const auto prompt = Prompt(10, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 3), prompt);
  gateway->Finish();
  ring.Turn(0, MakeTurn(2, 0, prompt.size(), 3), prompt);
  gateway->Finish();
  Frame stale;
  stale.set_phase(seam::v1::PHASE_DECODE);
  stale.set_branch(1);
  ASSERT_TRUE(ring.engine(1).Deliver(ring.Key(0, 1), Port::kUp, stale).ok());
  ring.Turn(0, MakeTurn(3, 0, prompt.size(), 3), prompt);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, prompt, 3));
  EXPECT_EQ(ring.engine(1).Stats().stale_frames, 1U);
}

}  // namespace
}  // namespace meshnet
