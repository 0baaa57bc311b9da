// Lanes of any place: closing, lost streams, and whatever frames come.
#include "lane.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lane_stand.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_PREFILL;

TEST(Lane, ClosesWhenIdleAndCancelsFirstWhenNot) {
  Tail idle;
  ASSERT_TRUE(idle.lane->OnClosed(Port::kUp, 1).ok());
  EXPECT_TRUE(idle.lane->wants_close());

  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 4).ok());
  ASSERT_TRUE(t.lane->OnClosed(Port::kUp, 1).ok());
  EXPECT_FALSE(t.lane->wants_close());
  ASSERT_TRUE(t.Loop(Port::kDown, 0, -1, 1, FINISH_CANCELLED).ok());
  EXPECT_TRUE(t.lane->wants_close());
  EXPECT_EQ(t.Take(), (Log{"down: turn 1 b1", "down: cancel 1 b1", "up: loop 0 finish 4 b1"}));

  Head cut;
  ASSERT_TRUE(cut.Turn(1, 0, 4).ok());
  EXPECT_EQ(cut.lane->OnClosed(Port::kDown, 1).code(), Code::kStreamEnded);
}

// Whatever comes, in whatever order, a lane answers with a Status, keeps to its positions and finishes each turn at
// most once.
TEST(Lane, SurvivesAnyFrames) {
  for (uint32_t seed = 0; seed < 3000; seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t n_stages = 1 + below(3);
    const uint32_t stage = below(n_stages);
    Stand t(stage == 0, stage + 1 == n_stages, n_stages, stage);
    t.down->credit = below(2) == 0 ? UINT64_MAX : 64;
    uint32_t turns = 0;
    for (int step = 0; step < 60; step++) {
      const auto port = static_cast<Port>(below(3));
      Status status;
      switch (below(7)) {
        case 0:
          status =
              t.Turn(turns + 1 + below(2), t.lane->kv_pos() - below(2) * t.lane->kv_pos(), 1 + below(9), turns + 1);
          if (status.ok()) turns++;
          break;
        case 1:
          status = t.Ids(turns, t.lane->turn().announced().n_tokens() + below(20) / 19);
          break;
        case 2:
          status = t.Cancel(turns - below(8) / 7);
          break;
        case 3:
        case 4:
          status = t.Activation(below(2) == 0 ? PHASE_PREFILL : PHASE_DECODE, t.lane->kv_pos() + below(9) / 8,
                                1 + below(3) * below(3), turns - below(8) / 7, below(2) == 0);
          break;
        case 5:
          status = t.Loop(port, t.lane->kv_pos(), static_cast<int32_t>(below(kVocab)) - 1, turns,
                          static_cast<seam::v1::Finish>(below(5)));
          break;
        default:
          status = below(10) == 0 ? t.lane->OnClosed(port, t.now) : Status();
          break;
      }
      if (!status.ok() && below(3) == 0) break;  // the engine would end the lane here; a lane must survive more
      const auto ready = t.lane->Ready();
      if (ready && ready->complete && !ready->blocked) {
        const LaneRun run = t.lane->Plan(1 + below(ready->rows));
        if (!t.lane->Reserve(run, t.now)) continue;
        std::vector<Row> rows;
        std::vector<float> input;
        t.lane->Fill(run, &rows, &input);
        ASSERT_EQ(rows.size(), run.rows);
        ASSERT_EQ(input.size(), t.lane->spec().head ? 0 : run.rows * kWidth);
        t.lane->Advance(run, t.now);
        if (!t.lane->spec().tail) {
          (void)t.lane->Forward(run, std::vector<float>(run.rows * kWidth), {}).ok();
        } else if (run.wants_logits) {
          (void)t.lane->Emit(run, {.token = 1, .end_of_generation = below(9) == 0, .logprobs = {}}, {}, 1, t.now).ok();
        }
      }
      ASSERT_LE(t.lane->kv_pos(), 32U);
    }
    std::map<std::string, int> finishes;
    for (const std::string & line : t.log) {
      if (line.find("finish") != std::string::npos) finishes[line.substr(line.rfind('b'))]++;
    }
    for (const auto & [branch, n] : finishes) EXPECT_EQ(n, 1) << branch;
  }
}

TEST(Lane, NeedsItsStreams) {
  Head t;
  t.lane->ports.Attach(Port::kDown, nullptr);
  EXPECT_EQ(t.Turn(1, 0, 4).code(), Code::kSeamUnreachable);
}

TEST(LanePorts, TellsEverySinkOnceAndNotTheSource) {
  Log log;
  const auto both = std::make_shared<Sink>(&log, "both");
  const auto other = std::make_shared<Sink>(&log, "other");
  LanePorts ports;
  ports.Attach(Port::kUp, both);
  ports.Attach(Port::kLoop, both);
  ports.Attach(Port::kDown, other);
  ports.CloseAll();
  EXPECT_EQ(log, (Log{"both: close", "other: close"}));
  log.clear();
  ports.SendAll(ErrorFrame({Code::kInternal, ""}, 0), Port::kUp);
  EXPECT_EQ(log.size(), 1U);
}

}  // namespace
}  // namespace meshnet
