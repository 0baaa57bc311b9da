// Rings of engines against the whole model: greedily, bit by bit, after rewinds and longer turns.
#include <gtest/gtest.h>

#include <map>

#include "engine_ring.h"
#include "engine_suite.h"
#include "trace.h"
#include "whole_model.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CONTEXT_FULL;
using seam::v1::FINISH_MAX_TOKENS;

// What one turn put at its positions: prompt and generated ids, from `start` on.
struct Said {
  uint32_t start = 0;
  std::vector<int32_t> ids;
};
using History = std::map<LaneKey, std::vector<Said>>;

// Runs the tail's ticks again on a whole model, with its batches and its sequence operations in their order.
void ExpectReplayEqual(const std::vector<TickTrace> & ticks, const History & history) {
  auto whole = WholeModel();
  const size_t n_vocab = static_cast<size_t>(whole->info().n_vocab);
  std::map<LaneKey, size_t> turn_of;
  std::map<LaneKey, int32_t> last_pos;
  size_t compared = 0;
  for (const TickTrace & tick : ticks) {
    for (const TraceOp & op : tick.operations) {
      if (op.keep == 0) {
        whole->Clear(op.seq);
      } else {
        ASSERT_TRUE(whole->Truncate(op.seq, op.keep).ok());
      }
    }
    std::vector<Row> rows;
    for (const TraceRow & row : tick.rows) {
      const auto & turns = history.at({row.key.session, row.key.epoch, 0});
      size_t & turn = turn_of[row.key];
      // A turn that reuses no prefix starts below or at the positions already seen.
      const bool back = last_pos.contains(row.key) && row.pos <= last_pos[row.key];
      const size_t end = turns[turn].start + turns[turn].ids.size();
      if (back || static_cast<size_t>(row.pos) >= end) turn++;
      last_pos[row.key] = row.pos;
      ASSERT_LT(turn, turns.size());
      const auto index = static_cast<size_t>(row.pos) - turns[turn].start;
      rows.push_back({turns[turn].ids.at(index), row.pos, row.seq, !row.logits_sha256.empty()});
    }
    ASSERT_TRUE(whole->Decode(rows, nullptr).ok());
    for (size_t i = 0; i < rows.size(); i++) {
      if (!rows[i].want_logits) continue;
      ASSERT_EQ(Sha256({whole->logits(i), n_vocab}), tick.rows[i].logits_sha256)
          << "tick " << tick.tick << " row " << i;
      compared++;
    }
  }
  EXPECT_GT(compared, 0U);
}

TEST_P(EngineRing, EqualsTheWholeModelGreedily) {
  auto whole = WholeModel();
  Ring ring({.cuts = GetParam()});
  const auto prompt = Prompt(150, 1);
  auto gateway = ring.Open(0, 200);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 24), prompt);
  const auto answer = gateway->Finish();
  EXPECT_EQ(answer.finish, FINISH_MAX_TOKENS);
  EXPECT_EQ(answer.pos, 150U + 23U);
  EXPECT_EQ(answer.tokens, Greedy(*whole, prompt, 24));
}

TEST_P(EngineRing, RunsManyLanesAtOnceBitwiseEqual) {
  // No group is torn on a busy machine: only equal batches give equal bits.
  const EngineParams params{.group_wait_us = 5'000'000, .trace_logits = true};
  Ring ring({.cuts = GetParam(), .n_ctx = 1024, .params = params});
  History history;
  std::vector<std::shared_ptr<Gateway>> gateways;
  for (int id = 0; id < 6; id++) gateways.push_back(ring.Open(id));
  for (int id = 0; id < 6; id++) {
    const auto prompt = Prompt(static_cast<size_t>(20 + 9 * id), static_cast<uint32_t>(id));
    ring.Turn(id, MakeTurn(1, 0, prompt.size(), 12), prompt);
    history[ring.Key(id, 0)].push_back({0, prompt});
  }
  for (int id = 0; id < 6; id++) {
    const auto answer = gateways[static_cast<size_t>(id)]->Finish();
    ASSERT_EQ(answer.tokens.size(), 12U);
    auto & said = history[ring.Key(id, 0)][0].ids;
    said = Joined(said, answer.tokens);
  }
  ExpectReplayEqual(ring.Ticks(ring.n_stages() - 1), history);
}

TEST_P(EngineRing, RewindsAndContinues) {
  Ring ring({.cuts = GetParam(), .params = {.trace_logits = true}});
  History history;
  auto gateway = ring.Open(0, 160);
  uint32_t number = 0;
  auto & said = history[ring.Key(0, 0)];
  const auto turn = [&](uint32_t start, size_t n, uint32_t seed) {
    const auto ids = Prompt(n, seed);
    ring.Turn(0, MakeTurn(++number, start, n, 5), ids);
    const auto answer = gateway->Finish();
    EXPECT_EQ(answer.tokens.size(), 5U);
    said.push_back({start, Joined(ids, answer.tokens)});
    said.back().ids.pop_back();  // the last one was not run
    return answer.pos;
  };
  uint32_t next = turn(0, 30, 1);
  next = turn(next, 10, 2);  // goes on
  next = turn(20, 15, 3);    // back into the first prompt
  next = turn(0, 70, 4);     // from the beginning
  EXPECT_EQ(next, 74U);
  turn(next, 1, 5);
  ExpectReplayEqual(ring.Ticks(ring.n_stages() - 1), history);
}

TEST_P(EngineRing, GoesOnWithMorePositions) {
  auto whole = WholeModel();
  Ring ring({.cuts = GetParam()});
  const auto prompt = Prompt(20, 21);
  auto gateway = ring.Open(0, 32);
  ring.Turn(0, MakeTurn(1, 0, prompt.size(), 40), prompt);
  const auto first = gateway->Finish();
  ASSERT_EQ(first.finish, FINISH_CONTEXT_FULL);
  EXPECT_EQ(first.pos, 32U);
  for (uint32_t stage = 0; stage < ring.n_stages(); stage++) {
    ASSERT_TRUE(ring.engine(stage).Extend(ring.Key(0, stage), 96).ok());
    EXPECT_EQ(ring.engine(stage).Extend(ring.Key(0, stage), 1000).code(), Code::kNoCapacity);
    EXPECT_EQ(ring.engine(stage).Stats().cells_free, 512U - 96U);
  }
  // The token that there was no position for comes first.
  const auto more = Joined({first.tokens.back()}, Prompt(8, 22));
  auto ids = Joined(prompt, first.tokens);
  ids.pop_back();
  ring.Turn(0, MakeTurn(2, first.pos, more.size(), 6), more);
  EXPECT_EQ(gateway->Finish().tokens, Greedy(*whole, Joined(ids, more), 6));
}

TEST_P(EngineRing, DrawsTheSameBesideTheNextTickAsBetweenTwo) {
  const auto prompt = Prompt(30, 1);
  auto turn = MakeTurn(1, 0, prompt.size(), 20);
  turn.set_logprobs(3);
  turn.mutable_sampling()->set_temperature(0.8F);
  turn.mutable_sampling()->set_seed(11);
  turn.mutable_sampling()->set_presence_penalty(0.5F);
  std::vector<Gateway::Answer> answers;
  for (const uint32_t threads : {0U, 1U, 2U}) {
    Ring ring({.cuts = GetParam(), .params = {.sampling_threads = threads}});
    auto gateway = ring.Open(0);
    ring.Turn(0, turn, prompt);
    answers.push_back(gateway->Finish());
    EXPECT_EQ(answers.back().finish, FINISH_MAX_TOKENS);
    EXPECT_EQ(answers.back().logprobs.size(), 20U);
    EXPECT_EQ(answers.back().tokens, answers.front().tokens) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, EngineRing,
                         testing::Values(std::vector<int>{}, std::vector<int>{1}, std::vector<int>{1, 2}));

}  // namespace
}  // namespace meshnet
