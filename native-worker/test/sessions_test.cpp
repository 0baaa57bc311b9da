// Many sessions at once on real shards: each has to get what a replay of the very batches gives, bit by bit, and
// what it gets alone. Run with --model PATH, a Llama model of four layers in f32 with 4,096 tokens; --seed N for others
// than the usual inputs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine_ring.h"
#include "sessions_play.h"
#include "sessions_record.h"
#include "sessions_replay.h"
#include "sessions_solo.h"

namespace meshnet {

std::string g_model_path;

namespace {

uint32_t g_seed = 1;

using Cuts = std::vector<int>;
const Cuts kTwoStages = {2};
const Cuts kThreeStages = {1, 3};

struct Fault {
  Mistake mistake = Mistake::kNone;
  uint32_t stage = 0;
};

// That the scenario was what it is for.
struct Tally {
  size_t turns = 0, rewinds = 0, cancelled = 0, ended = 0;
  size_t batches = 0, shared = 0;  // shared: of more sessions than one
  size_t rows = 0;                 // compared bit by bit
};

struct Outcome {
  Findings findings;
  std::atomic<int> n_mistakes = 0;
  Tally tally;
  SoloResult solo;
};

void Count(const std::vector<PlayedSession> & sessions, Tally * tally) {
  for (const PlayedSession & session : sessions) {
    uint32_t next = 0;
    for (const PlayedTurn & turn : session.turns) {
      tally->turns++;
      tally->rewinds += turn.turn.start() < next ? 1 : 0;
      tally->cancelled += turn.finish == seam::v1::FINISH_CANCELLED ? 1 : 0;
      tally->ended += turn.finish == seam::v1::FINISH_UNSPECIFIED ? 1 : 0;
      next = turn.pos;
    }
  }
}

void Count(const std::vector<RanStep> & composition, Tally * tally) {
  for (const RanStep & step : composition) {
    std::set<std::string> sessions;
    for (const RanRow & row : step.rows) sessions.insert(row.session);
    tally->batches += sessions.empty() ? 0 : 1;
    tally->shared += sessions.size() > 1 ? 1 : 0;
  }
}

void PlayAndCheck(const Cuts & cuts, const PlayParams & params, Fault fault, Outcome * run) {
  std::deque<Recording> recordings(cuts.size() + 1);
  RingOptions options{.cuts = cuts,
                      .n_ctx = params.seats * params.positions,
                      .n_seq_max = params.seats,
                      .n_ubatch = 32,
                      .params = {.trace_logits = true}};
  RingOptions watched = options;
  watched.wrap = [&](uint32_t stage, Shard && loaded) -> std::unique_ptr<Shard> {
    const Mistake mistake = stage == fault.stage ? fault.mistake : Mistake::kNone;
    return std::make_unique<WatchedShard>(std::move(loaded), &recordings[stage], mistake, &run->n_mistakes);
  };

  std::vector<PlayedSession> sessions;
  std::vector<std::vector<RanStep>> compositions;
  {
    Ring ring(watched);
    sessions = Play(&ring, params, &run->findings);
    CheckAllFree(&ring, &run->findings);
    sessions.push_back(FillEveryCell(&ring, &run->findings));
    CheckAllFree(&ring, &run->findings);
    for (uint32_t stage = 0; stage < ring.n_stages(); stage++) {
      compositions.push_back(Compose(ring.Ticks(stage), recordings[stage], &run->findings));
      Count(compositions.back(), &run->tally);
    }
  }
  Count(sessions, &run->tally);
  Replay replay(options, sessions, &run->findings);
  replay.Run(compositions);
  replay.CheckAnswers();
  run->tally.rows = replay.n_compared();
  run->solo = CheckSolo(options, sessions, replay.draws(), &run->findings);
}

std::string SeedName() { return "seed " + std::to_string(g_seed); }

class Sessions : public testing::TestWithParam<std::tuple<uint32_t, Cuts>> {};

TEST_P(Sessions, GetWhatTheyGetInAReplayOfTheirBatchesAndAlone) {
  SCOPED_TRACE(SeedName());
  const auto & [seats, cuts] = GetParam();
  Outcome run;
  PlayAndCheck(cuts, {.seats = seats, .seed = g_seed}, {}, &run);
  EXPECT_EQ(run.findings.n(), 0U) << run.findings.Text();
  const Tally & tally = run.tally;
  EXPECT_EQ(tally.turns, 251U);
  EXPECT_GT(tally.rewinds, 20U);
  EXPECT_GT(tally.cancelled, 10U);
  EXPECT_GT(tally.ended, 5U);
  EXPECT_GT(tally.shared, 30U);
  EXPECT_GT(tally.rows, tally.batches);
  EXPECT_GT(run.solo.n_rows, 500U);
  std::printf("%zu turns, %zu rewinds, %zu cancelled, %zu ended under way; %zu of %zu batches shared; %zu rows equal; "
              "%zu rows at most %g from alone\n",
              tally.turns, tally.rewinds, tally.cancelled, tally.ended, tally.shared, tally.batches, tally.rows,
              run.solo.n_rows, static_cast<double>(run.solo.max_difference));
}

INSTANTIATE_TEST_SUITE_P(FourAndEight, Sessions,
                         testing::Combine(testing::Values(4U, 8U), testing::Values(kTwoStages, kThreeStages)));

class MistakenShard : public testing::TestWithParam<std::tuple<Mistake, uint32_t>> {};

TEST_P(MistakenShard, IsSeen) {
  SCOPED_TRACE(SeedName());
  const auto & [mistake, stage] = GetParam();
  Outcome run;
  // Short prompts: lanes of one batch are often at equal positions.
  const PlayParams params{.seats = 8, .turns = 200, .seed = g_seed, .max_prompt = 6, .max_long = 6};
  PlayAndCheck(kThreeStages, params, {mistake, stage}, &run);
  EXPECT_EQ(run.n_mistakes.load(), 1);
  EXPECT_GT(run.findings.n(), 0U);
}

INSTANTIATE_TEST_SUITE_P(OnEachStage, MistakenShard,
                         testing::Combine(testing::Values(Mistake::kSwapIds, Mistake::kSkipClear),
                                          testing::Values(0U, 1U, 2U)));

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i++) {
    if (std::strcmp(argv[i], "--model") == 0) meshnet::g_model_path = argv[i + 1];
    if (std::strcmp(argv[i], "--seed") == 0) meshnet::g_seed = static_cast<uint32_t>(std::stoul(argv[i + 1]));
  }
  return RUN_ALL_TESTS();
}
