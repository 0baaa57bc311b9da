// How turns and lanes of a ring end: cancelled, closed, released, without a position left, with an error.
#include <gtest/gtest.h>

#include <cmath>

#include "engine_ring.h"
#include "engine_suite.h"
#include "whole_model.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::FINISH_CONTEXT_FULL;

TEST_P(EngineRing, CancelsInDecodeAndGoesOnFromWhereTheTailWas) {
  auto whole = WholeModel(2048);
  Ring ring({.cuts = GetParam(), .n_ctx = 2048});
  const auto prompt = Prompt(40, 7);
  auto gateway = ring.Open(0, 1600);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 1500), prompt);
  std::vector<int32_t> ids = prompt;
  for (int i = 0; i < 5; i++) ids.push_back(gateway->Next().tokens(0));
  ring.Cancel(0, 1);
  const auto answer = gateway->Finish();
  EXPECT_EQ(answer.finish, FINISH_CANCELLED);
  ids = Joined(ids, answer.tokens);
  ASSERT_LE(answer.pos, ids.size());
  EXPECT_EQ(ids, Joined(prompt, Greedy(*whole, prompt, ids.size() - prompt.size())));
  EXPECT_EQ(gateway->n_waiting(), 0U);

  // The state of the cancelled turn is as good as any.
  const auto more = Prompt(8, 8);
  ids.resize(answer.pos);
  ring.Turn(0, MakeTurn(2, answer.pos, more.size(), 6), more);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, Joined(ids, more), 6));
}

TEST_P(EngineRing, CancelsInPrefill) {
  auto whole = WholeModel(4096, 16);
  Ring ring({.cuts = GetParam(), .n_ctx = 4096, .n_ubatch = 16});
  const auto prompt = Prompt(3000, 9);
  auto gateway = ring.Open(0, 3100);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 50), prompt);
  ring.Cancel(0, 1);
  ring.Cancel(0, 1);
  const auto cancelled = gateway->Finish();
  EXPECT_EQ(cancelled.finish, FINISH_CANCELLED);
  EXPECT_TRUE(cancelled.tokens.empty());
  EXPECT_LT(cancelled.pos, 3000U);
  const auto next = Prompt(20, 10);
  ring.Turn(0, MakeTurn(2, 0, next.size(), 4), next);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, next, 4));
}

TEST_P(EngineRing, CancelsWhileTokensAreDrawn) {
  auto whole = WholeModel(2048);
  Ring ring({.cuts = GetParam(), .n_ctx = 2048});
  const auto prompt = Prompt(10, 7);
  auto gateway = ring.Open(0, 1600);
  constexpr uint32_t kTurns = 24;
  for (uint32_t number = 1; number <= kTurns; number++) {
    auto turn = MakeTurn(number, 0, prompt.size(), 1500);
    turn.mutable_sampling()->set_temperature(1);
    ring.Turn(0, turn, prompt);
    for (uint32_t i = 0; i < number % 4; i++) EXPECT_EQ(gateway->Next().n_tokens(), 1U);
    ring.Cancel(0, number);
    const auto answer = gateway->Finish();
    EXPECT_EQ(answer.finish, FINISH_CANCELLED);
    EXPECT_LE(answer.pos, prompt.size() + number % 4 + answer.tokens.size());
  }
  ring.Turn(0, MakeTurn(kTurns + 1, 0, prompt.size(), 10), prompt);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, prompt, 10));
}

TEST_P(EngineRing, ClosesInOrderAndFreesEverything) {
  Ring ring({.cuts = GetParam()});
  auto gateway = ring.Open(0);
  const auto prompt = Prompt(10, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 3), prompt);
  gateway->Finish();
  ring.Close(0);
  EXPECT_TRUE(gateway->WaitClosed());
  for (uint32_t stage = 0; stage < ring.n_stages(); stage++) {
    EXPECT_EQ(ring.WaitEnded(0, stage), Code::kOk);
    const auto stats = ring.engine(stage).Stats();
    EXPECT_EQ(stats.cells_free, stats.cells_total);
    EXPECT_EQ(stats.sequences_free, stats.sequences_total);
  }
}

TEST_P(EngineRing, CloseDuringATurnFinishesItFirst) {
  Ring ring({.cuts = GetParam(), .n_ctx = 2048});
  auto gateway = ring.Open(0, 1600);
  const auto prompt = Prompt(10, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 1500), prompt);
  gateway->Next();
  ring.Close(0);
  EXPECT_EQ(gateway->Finish().finish, FINISH_CANCELLED);
  EXPECT_TRUE(gateway->WaitClosed());
  EXPECT_EQ(ring.WaitEnded(0, 0), Code::kOk);
}

TEST_P(EngineRing, ReleaseGivesACleanSequenceToTheNext) {
  auto whole = WholeModel(2048);
  Ring ring({.cuts = GetParam(), .n_ctx = 2048, .n_seq_max = 1});
  const auto prompt = Prompt(30, 3);
  for (int id = 0; id < 3; id++) {
    auto gateway = ring.Open(id, 1600);
    ring.Turn(id, MakeTurn(1, 0, prompt.size(), 1500), prompt);
    const auto expected = Greedy(*whole, prompt, 4);
    for (const int32_t token : expected) EXPECT_EQ(gateway->Next().tokens(0), token);
    for (uint32_t stage = 0; stage < ring.n_stages(); stage++) ring.engine(stage).Release(ring.Key(id, stage), {});
    EXPECT_NE(gateway->Finish().error, Code::kOk);
  }
}

TEST(Engine, SaysWhyALaneIsReleasedWhateverComesMeanwhile) {
  Gate gate;
  Ring ring({.cuts = {2}, .give_up = [&](uint32_t stage, std::span<const Row>) {
               if (stage == 1) gate.Pass();
               return false;
             }});
  auto gateway = ring.Open(0);
  const auto prompt = Prompt(30, 3);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 20), prompt);
  gate.WaitForOne();  // the engine of the tail is in a tick, and cannot tell anybody
  ring.engine(1).Release(ring.Key(0, 1), {Code::kWorkerLost, "the worker stops"});
  Frame late;
  late.mutable_cancel()->set_turn(1);
  EXPECT_TRUE(ring.engine(1).Deliver(ring.Key(0, 1), Port::kUp, late).ok());
  gate.Open();
  EXPECT_EQ(gateway->Finish().error, Code::kWorkerLost);
  EXPECT_EQ(ring.WaitEnded(0, 1), Code::kWorkerLost);
  Engine::ProbeResult probe;
  EXPECT_TRUE(ring.engine(1).Probe(1, 10000, &probe).ok());  // by now the engine is through with the release
  EXPECT_EQ(ring.engine(1).Deliver(ring.Key(0, 1), Port::kUp, late).code(), Code::kLaneNotOpen);
}

TEST_P(EngineRing, EndsTurnsThatDoNotFitWithTypedErrors) {
  struct Case {
    Code code;
    std::function<void(Ring &, int)> act;
  };
  const auto ids = Prompt(10, 1);
  const std::vector<Case> cases = {
      {Code::kContextFull, [&](Ring & r, int id) { r.Turn(id, MakeTurn(1, 0, 97, 1), Prompt(97, 1)); }},
      {Code::kPositionInvalid, [&](Ring & r, int id) { r.Turn(id, MakeTurn(1, 1, ids.size(), 1), ids); }},
      {Code::kTokenInvalid,
       [&](Ring & r, int id) {
         r.Turn(id, MakeTurn(1, 0, 2, 1), {1, 1 << 20});
       }},
      {Code::kTurnInvalid, [&](Ring & r, int id) { r.Turn(id, MakeTurn(1, 0, 2, 1), ids); }},
      {Code::kTurnInvalid, [&](Ring & r, int id) { r.Turn(id, MakeTurn(1, 0, ids.size(), 0), ids); }},
      {Code::kTurnInvalid,
       [&](Ring & r, int id) {
         auto turn = MakeTurn(1, 0, ids.size(), 5);
         turn.mutable_sampling()->set_temperature(std::nanf(""));
         r.Turn(id, turn, ids);
       }},
      {Code::kGrammarInvalid,
       [&](Ring & r, int id) {
         auto turn = MakeTurn(1, 0, ids.size(), 5);
         turn.set_grammar("root ::= (");
         r.Turn(id, turn, ids);
       }},
      {Code::kTurnInvalid,
       [&](Ring & r, int id) {
         r.Turn(id, MakeTurn(1, 0, ids.size(), 80), ids);
         r.Turn(id, MakeTurn(2, 0, ids.size(), 5), ids);
       }},
  };
  Ring ring({.cuts = GetParam()});
  int id = 0;
  for (const Case & c : cases) {
    auto gateway = ring.Open(id);
    c.act(ring, id);
    EXPECT_EQ(gateway->Finish().error, c.code) << "case " << id;
    for (uint32_t stage = 0; stage < ring.n_stages(); stage++) EXPECT_EQ(ring.WaitEnded(id, stage), c.code);
    id++;
  }
}

TEST_P(EngineRing, EndsWithContextFullWhenNoPositionIsLeft) {
  Ring ring({.cuts = GetParam()});
  auto gateway = ring.Open(0, 40);
  const auto prompt = Prompt(36, 1);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 100), prompt);
  const auto answer = gateway->Finish();
  EXPECT_EQ(answer.finish, FINISH_CONTEXT_FULL);
  EXPECT_EQ(answer.tokens.size(), 5U);
  EXPECT_EQ(answer.pos, 40U);
}

}  // namespace
}  // namespace meshnet
