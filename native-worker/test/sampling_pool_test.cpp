// SamplingPool: which frames leave, when, and what the engine hears of them.
#include "sampling_pool.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine_ring.h"
#include "vocabulary_suite.h"

namespace meshnet {
namespace {

class SamplingPoolTest : public VocabularySuite {
 protected:
  static std::shared_ptr<Sampler> Make(uint64_t seed) {
    auto turn = MakeTurn(1, 0, 1, 100);
    turn.mutable_sampling()->set_temperature(1);
    turn.mutable_sampling()->set_seed(seed);
    turn.mutable_sampling()->set_presence_penalty(1);
    std::unique_ptr<Sampler> sampler;
    EXPECT_TRUE(Sampler::Create(turn, 100, pieces_.get(), &sampler).ok());
    return sampler;
  }
  // A draw of lane `id`, as a later stage announces it.
  static Draw MakeDraw(uint64_t id, std::shared_ptr<Gateway> to, std::shared_ptr<Sampler> sampler, uint32_t pos = 0) {
    Draw draw{.id = id, .lane = {"lane", static_cast<uint32_t>(id), 1}, .sampler = {}, .logits = {}, .emission = {}};
    draw.sampler = std::move(sampler);
    draw.logits = Logits(pos);
    draw.pos = pos;
    draw.emission.frame.set_pos(pos);
    draw.emission.sink = std::move(to);
    draw.emission.grouped = true;
    return draw;
  }
  template <typename... Draws>
  static std::vector<Draw> Tick(Draws... draws) {
    std::vector<Draw> tick;
    (tick.push_back(std::move(draws)), ...);
    return tick;
  }
};

TEST_F(SamplingPoolTest, DrawsWhatTheSamplerAloneDraws) {
  constexpr size_t kLanes = 4;
  SamplingPool pool(2, [] {});
  std::vector<std::shared_ptr<Sampler>> here;
  std::vector<std::shared_ptr<Sampler>> there;
  std::vector<std::shared_ptr<Gateway>> gateways;
  for (size_t i = 0; i < kLanes; i++) {
    here.push_back(Make(i));
    there.push_back(Make(i));
    gateways.push_back(std::make_shared<Gateway>());
  }
  uint64_t id = 0;
  for (uint32_t pos = 0; pos < 12; pos++) {
    std::vector<Draw> tick;
    for (size_t i = 0; i < kLanes; i++) tick.push_back(MakeDraw(++id, gateways[i], there[i], pos));
    pool.Submit(std::move(tick));
    for (size_t i = 0; i < kLanes; i++) {
      Drawn expected;
      ASSERT_TRUE(here[i]->Draw(Logits(pos), pos, &expected).ok());
      const Frame frame = gateways[i]->Next();
      ASSERT_EQ(frame.tokens_size(), 1);
      EXPECT_EQ(frame.tokens(0), expected.token);
      EXPECT_EQ(frame.pos(), pos);
      EXPECT_EQ(frame.group_size(), kLanes);
    }
    // Whoever has seen a frame finds its result.
    EXPECT_EQ(pool.Take().size(), kLanes);
  }
}

TEST_F(SamplingPoolTest, SendsNothingOfWhatWasRecalled) {
  Gate gate;
  SamplingPool pool(1, [&] { gate.Pass(); });
  const auto first = std::make_shared<Gateway>();
  const auto recalled = std::make_shared<Gateway>();
  const auto mate = std::make_shared<Gateway>();
  pool.Submit(Tick(MakeDraw(1, first, Make(1))));
  gate.WaitForOne();
  pool.Submit(Tick(MakeDraw(2, recalled, Make(2)), MakeDraw(3, mate, Make(3))));
  EXPECT_FALSE(pool.Recall(2).has_value());
  const auto left = pool.Recall(1);  // too late: it was sent
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(first->Next().tokens(0), left->drawn.token);
  gate.Open();
  EXPECT_EQ(mate->Next().group_size(), 1U);
  const auto results = pool.Take();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].id, 3U);
  EXPECT_EQ(recalled->n_waiting(), 0U);
}

TEST_F(SamplingPoolTest, KeepsNothingOfARecalledDrawUntilItsTurn) {
  Gate gate;
  SamplingPool pool(1, [&] { gate.Pass(); });
  const auto gateway = std::make_shared<Gateway>();
  pool.Submit(Tick(MakeDraw(1, gateway, Make(1))));
  gate.WaitForOne();  // the only thread that draws is busy from here on
  auto sampler = Make(2);
  const std::weak_ptr<Sampler> held = sampler;
  pool.Submit(Tick(MakeDraw(2, gateway, std::move(sampler))));
  EXPECT_FALSE(pool.Recall(2).has_value());
  EXPECT_TRUE(held.expired());
  gate.Open();
}

TEST_F(SamplingPoolTest, ADrawThatFailsCostsNoOther) {
  SamplingPool pool(1, [] {});
  const auto bad = std::make_shared<Gateway>();
  const auto good = std::make_shared<Gateway>();
  Draw draw = MakeDraw(1, bad, Make(1));
  draw.logits[7] = std::numeric_limits<float>::quiet_NaN();
  pool.Submit(Tick(std::move(draw), MakeDraw(2, good, Make(2))));
  EXPECT_EQ(good->Next().group_size(), 1U);
  const auto results = pool.Take();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].status.code(), Code::kValueInvalid);
  EXPECT_TRUE(results[1].status.ok());
  EXPECT_EQ(bad->n_waiting(), 0U);
}

TEST_F(SamplingPoolTest, EndsATurnWithItsLastToken) {
  SamplingPool pool(1, [] {});
  const auto gateway = std::make_shared<Gateway>();
  Draw draw = MakeDraw(1, gateway, Make(1));
  draw.emission.limit = seam::v1::FINISH_MAX_TOKENS;
  pool.Submit(Tick(std::move(draw)));
  EXPECT_EQ(gateway->Next().finish(), seam::v1::FINISH_MAX_TOKENS);
  const auto results = pool.Take();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].finish, seam::v1::FINISH_MAX_TOKENS);
}

TEST_F(SamplingPoolTest, EndsWithDrawsThatNobodyWaitsFor) {
  const auto gateway = std::make_shared<Gateway>();
  SamplingPool pool(2, [] {});
  for (uint64_t id = 1; id <= 40; id++) pool.Submit(Tick(MakeDraw(id, gateway, Make(id))));
}

}  // namespace
}  // namespace meshnet
