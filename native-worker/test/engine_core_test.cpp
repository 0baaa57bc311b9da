// EngineCore, ticked by the test itself on a whole model.
#include "engine_core.h"

#include <gtest/gtest.h>
#include <llama.h>
#include <malloc.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine_ring.h"
#include "whole_model.h"

namespace meshnet {
namespace {

constexpr uint64_t kSequences = 8;  // of a whole model

LaneParams Params(const std::string & session, uint32_t positions, const std::string & client = {}) {
  LaneParams params;
  params.key = {session, 1, 0};
  params.positions = positions;
  params.client = client;
  return params;
}

// A lane of one turn with a core that the test ticks itself.
std::shared_ptr<Gateway> OpenTurn(EngineCore & core, const LaneParams & params, uint64_t instance,
                                  const std::vector<int32_t> & prompt, const seam::v1::Turn & turn) {
  auto gateway = std::make_shared<Gateway>();
  core.Open(params, instance, static_cast<int32_t>(instance % kSequences));
  core.Attach(params.key, instance, Port::kUp, gateway);
  Frame frame;
  *frame.mutable_turn() = turn;
  core.OnFrame(params.key, instance, Port::kUp, frame);
  frame = Frame();
  frame.mutable_turn_tokens()->set_turn(1);
  frame.mutable_turn_tokens()->mutable_ids()->Add(prompt.begin(), prompt.end());
  frame.mutable_turn_tokens()->set_last(true);
  core.OnFrame(params.key, instance, Port::kUp, frame);
  return gateway;
}

TEST(EngineCore, AFailedBatchCostsOnlyTheLaneThatCannotRun) {
  auto whole = WholeModel(256, 256);
  auto shard = WholeModel(256, 256);
  std::map<std::string, Code> ended;
  EngineObserver observer;
  observer.lane_ended = [&](const LaneKey & key, const Status & why) { ended[key.session] = why.code(); };
  Meter meter;
  EngineCore core(shard.get(), {}, observer, &meter, [](const LaneKey &, uint64_t) {});
  const auto prompt = Prompt(100, 1);
  // Three lanes of 110 positions in 256 cells, which no ledger would grant.
  const auto open = [&](const std::string & session, uint64_t instance) {
    return OpenTurn(core, Params(session, 110), instance, prompt, MakeTurn(1, 0, prompt.size(), 6));
  };
  const auto expected = Greedy(*whole, prompt, 6);
  auto idle = open("idle", 1);
  while (core.Tick()) {
  }
  EXPECT_EQ(idle->Finish().tokens, expected);
  auto lucky = open("lucky", 2);
  auto unlucky = open("unlucky", 3);
  while (core.Tick()) {
  }
  EXPECT_EQ(lucky->Finish().tokens, expected);
  EXPECT_EQ(unlucky->Finish().error, Code::kDecodeFailed);
  EXPECT_EQ(ended, (std::map<std::string, Code>{{"unlucky", Code::kDecodeFailed}}));
}

// Counts the ticks that each session has rows in; needs trace_logits.
EngineObserver Counting(std::map<std::string, size_t> * n_ticks) {
  EngineObserver observer;
  observer.tick = [n_ticks](const TickTrace & tick) {
    std::set<std::string> sessions;
    for (const TraceRow & row : tick.rows) sessions.insert(row.key.session);
    for (const auto & session : sessions) (*n_ticks)[session]++;
  };
  return observer;
}

TEST(EngineCore, AClientWithManyPromptsTakesNoMoreThanHalfFromAnother) {
  auto shard = WholeModel(2048);
  std::map<std::string, size_t> n_ticks;
  Meter meter;
  EngineCore core(shard.get(), {.trace_logits = true}, Counting(&n_ticks), &meter, [](const LaneKey &, uint64_t) {});
  const auto prompt = Prompt(256, 1);  // four ticks, more on a slow machine
  const auto turn = MakeTurn(1, 0, prompt.size(), 4);
  std::vector<std::shared_ptr<Gateway>> many;
  for (uint64_t i = 0; i < 5; i++) {
    many.push_back(OpenTurn(core, Params("many" + std::to_string(i), 300, "many"), i, prompt, turn));
  }
  auto one = OpenTurn(core, Params("one", 300, "one"), 5, prompt, turn);
  size_t ticks = 0;
  for (; one->n_waiting() == 0; ticks++) ASSERT_TRUE(core.Tick());
  EXPECT_LE(ticks, 2 * n_ticks["one"] + 1);
}

TEST(EngineCore, AClientWithASessionForEachPromptTakesNoMoreThanItsTurns) {
  auto shard = WholeModel(2048);
  std::map<std::string, size_t> n_ticks;
  Meter meter;
  EngineCore core(shard.get(), {.trace_logits = true}, Counting(&n_ticks), &meter, [](const LaneKey &, uint64_t) {});
  const auto prompt = Prompt(900, 1);
  const auto turn = MakeTurn(1, 0, prompt.size(), 4);
  const auto open = [&](const std::string & name, uint64_t instance) {
    return OpenTurn(core, Params(name, 1000, name), instance, prompt, turn);
  };
  const auto a = open("a", 1);
  const auto b = open("b", 2);
  for (uint64_t life = 1; life <= 12; life++) {
    open("hopper", life * kSequences);
    ASSERT_TRUE(core.Tick());
    core.Release({"hopper", 1, 0}, life * kSequences, {});
  }
  EXPECT_EQ(n_ticks["a"], 4U);
  EXPECT_EQ(n_ticks["b"], 4U);
  EXPECT_EQ(n_ticks["hopper"], 4U);
}

TEST(EngineCore, KeepsNoSamplerOfATurnThatIsOver) {
  auto shard = WholeModel();
  Meter meter;
  EngineCore core(shard.get(), {}, {}, &meter, [](const LaneKey &, uint64_t) {});
  const auto prompt = Prompt(2, 1);
  auto turn = MakeTurn(1, 0, prompt.size(), 1);
  turn.mutable_sampling()->set_temperature(1);
  const auto in_use = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  constexpr uint64_t kLanes = 8;
  size_t before = 0;
  for (uint64_t i = 0; i < kLanes; i++) {
    auto gateway = OpenTurn(core, Params("lane" + std::to_string(i), 8), i, prompt, turn);
    ASSERT_TRUE(core.Tick());
    EXPECT_EQ(gateway->Finish().finish, seam::v1::FINISH_MAX_TOKENS);
    if (i == 0) before = in_use();
  }
  // Each drew from some hundred kilobytes of candidates. A sanitizer's allocator tells nothing.
  EXPECT_LT(in_use(), before + 2 * 30000 * sizeof(llama_token_data));
}

TEST(EngineCore, ATickWaitsForNoDraw) {
  auto shard = WholeModel();
  Meter meter;
  Gate gate;
  EngineCore core(shard.get(), {}, {}, &meter, [](const LaneKey &, uint64_t) {}, [&] { gate.Pass(); });
  const auto prompt = Prompt(10, 1);
  auto turn = MakeTurn(1, 0, prompt.size(), 4);
  turn.mutable_sampling()->set_temperature(1);
  auto first = OpenTurn(core, Params("first", 50), 0, prompt, turn);
  ASSERT_TRUE(core.Tick());
  EXPECT_EQ(first->Next().tokens_size(), 1);
  gate.WaitForOne();  // the only thread that draws is busy from here on
  auto second = OpenTurn(core, Params("second", 50), 1, prompt, turn);
  ASSERT_TRUE(core.Tick());
  while (core.Tick()) {
  }
  EXPECT_EQ(second->n_waiting(), 0U);
  gate.Open();
  EXPECT_EQ(second->Next().tokens_size(), 1);
  core.TakeDrawn();
  ASSERT_TRUE(core.Tick());
  EXPECT_EQ(second->Next().tokens_size(), 1);
}

TEST(EngineCore, ACancelRecallsTheTokenThatHasNotLeft) {
  auto shard = WholeModel();
  Meter meter;
  Gate gate;
  EngineCore core(shard.get(), {}, {}, &meter, [](const LaneKey &, uint64_t) {}, [&] { gate.Pass(); });
  const auto prompt = Prompt(10, 1);
  auto turn = MakeTurn(1, 0, prompt.size(), 4);
  turn.mutable_sampling()->set_temperature(1);
  const auto open = [&](const std::string & session, uint64_t instance) {
    return OpenTurn(core, Params(session, 50), instance, prompt, turn);
  };
  auto left = open("left", 0);
  ASSERT_TRUE(core.Tick());
  gate.WaitForOne();  // its token has left, and the only thread that draws is busy from here on
  auto recalled = open("recalled", 1);
  ASSERT_TRUE(core.Tick());
  Frame cancel;
  cancel.mutable_cancel()->set_turn(1);
  core.OnFrame({"left", 1, 0}, 0, Port::kUp, cancel);
  core.OnFrame({"recalled", 1, 0}, 1, Port::kUp, cancel);
  EXPECT_EQ(left->Next().tokens_size(), 1);
  for (const auto & gateway : {left, recalled}) {
    const auto answer = gateway->Finish();
    EXPECT_EQ(answer.finish, seam::v1::FINISH_CANCELLED);
    EXPECT_TRUE(answer.tokens.empty());
    EXPECT_EQ(answer.pos, prompt.size());
  }
  auto last = open("last", 2);
  ASSERT_TRUE(core.Tick());
  gate.Open();
  EXPECT_EQ(last->Next().tokens_size(), 1);  // drawn after what was recalled
  EXPECT_EQ(recalled->n_waiting(), 0U);
}

}  // namespace
}  // namespace meshnet
