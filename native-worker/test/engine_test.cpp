// Engines in a ring on real shards, against the whole model. Run with --model PATH, a Llama model of three layers.
#include "engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include "engine_ring.h"
#include "trace.h"
#include "whole_model.h"

namespace meshnet {

std::string g_model_path;

namespace {

using seam::v1::FINISH_CANCELLED;
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

std::vector<int32_t> Joined(std::vector<int32_t> a, const std::vector<int32_t> & b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class EngineRing : public testing::TestWithParam<std::vector<int>> {};

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

INSTANTIATE_TEST_SUITE_P(Stages, EngineRing,
                         testing::Values(std::vector<int>{}, std::vector<int>{1}, std::vector<int>{1, 2}));

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
