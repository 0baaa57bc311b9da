// What a failed decode costs: one session, on all of its stages. llama.cpp itself breaks the decode off.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine_ring.h"

namespace meshnet {
namespace {

constexpr int kSessions = 7;
constexpr int kVictim = 3;
constexpr size_t kVictimPrompt = 30;
constexpr uint32_t kAnswer = 20;       // of the victim
constexpr uint32_t kMatesAnswer = 50;  // they are still at it when the victim falls

struct Fault {
  uint32_t stage;
  int32_t pos;  // of the victim's first row that cannot be computed
};

class FailedDecode : public testing::TestWithParam<Fault> {
 protected:
  void SetUp() override {
    // All lanes that can run share a tick, so the victim has mates.
    RingOptions options{.cuts = {1, 2}, .n_ctx = 1024, .params = {.lockstep = true}};
    options.give_up = [this](uint32_t stage, std::span<const Row> rows) { return IsHit(stage, rows); };
    ring_ = std::make_unique<Ring>(options);
  }

  bool IsHit(uint32_t stage, std::span<const Row> rows) {
    if (!armed_ || stage != GetParam().stage) return false;
    // Sessions are opened in order, and sequence ids given out from 0.
    const auto victims = [](const Row & row) { return row.seq == kVictim; };
    const auto hit = [&](const Row & row) { return victims(row) && row.pos >= GetParam().pos; };
    if (std::none_of(rows.begin(), rows.end(), hit)) return false;
    (std::all_of(rows.begin(), rows.end(), victims) ? alone_ : shared_)++;
    return true;
  }

  void ExpectAllFree() {
    for (uint32_t stage = 0; stage < ring_->n_stages(); stage++) {
      const auto stats = ring_->engine(stage).Stats();
      EXPECT_EQ(stats.lanes, 0U);
      EXPECT_EQ(stats.cells_free, stats.cells_total);
      EXPECT_EQ(stats.sequences_free, stats.sequences_total);
    }
  }
  // The victim's turn, by whatever session has opened this gateway.
  Gateway::Answer PlayVictim(int id, Gateway & gateway) {
    const auto prompt = Prompt(kVictimPrompt, kVictim);
    ring_->Turn(id, MakeTurn(1, 0, prompt.size(), kAnswer), prompt);
    return gateway.Finish();
  }
  void Leave(int id) {
    ring_->Close(id);
    for (uint32_t stage = 0; stage < ring_->n_stages(); stage++) EXPECT_EQ(ring_->WaitEnded(id, stage), Code::kOk);
  }

  std::atomic<bool> armed_ = false;
  std::atomic<int> alone_ = 0;   // decodes that failed with the victim's rows only
  std::atomic<int> shared_ = 0;  // with those of others too
  std::unique_ptr<Ring> ring_;
};

TEST_P(FailedDecode, EndsOneSessionOnEveryStageAndNoOther) {
  const int first = 2 * kSessions;
  const auto undisturbed = PlayVictim(first, *ring_->Open(first)).tokens;
  Leave(first);
  armed_ = true;
  std::vector<std::shared_ptr<Gateway>> gateways;
  for (int id = 0; id < kSessions; id++) gateways.push_back(ring_->Open(id));
  for (int id = 0; id < kSessions; id++) {
    const auto prompt = Prompt(40, static_cast<uint32_t>(id));
    if (id != kVictim) ring_->Turn(id, MakeTurn(1, 0, prompt.size(), kMatesAnswer), prompt);
  }
  EXPECT_EQ(PlayVictim(kVictim, *gateways[kVictim]).error, Code::kDecodeFailed);
  for (uint32_t stage = 0; stage < ring_->n_stages(); stage++) {
    EXPECT_EQ(ring_->WaitEnded(kVictim, stage), Code::kDecodeFailed) << "stage " << stage;
  }
  EXPECT_EQ(gateways[kVictim]->n_waiting(), 0U);
  EXPECT_EQ(alone_.load(), 1);
  if (GetParam().pos >= static_cast<int32_t>(kVictimPrompt)) {
    EXPECT_EQ(shared_.load(), 1);
  }
  for (int id = 0; id < kSessions; id++) {
    if (id == kVictim) continue;
    const auto answer = gateways[static_cast<size_t>(id)]->Finish();
    EXPECT_EQ(answer.finish, seam::v1::FINISH_MAX_TOKENS) << "session " << id;
    EXPECT_EQ(answer.tokens.size(), kMatesAnswer) << "session " << id;
    Leave(id);
  }
  ExpectAllFree();

  // Whoever gets the victim's sequence finds it clean.
  armed_ = false;
  for (int id = kSessions; id < first; id++) gateways.push_back(ring_->Open(id));
  EXPECT_EQ(PlayVictim(kSessions + kVictim, *gateways[kSessions + kVictim]).tokens, undisturbed);
  for (int id = kSessions; id < first; id++) Leave(id);
  ExpectAllFree();
}

INSTANTIATE_TEST_SUITE_P(StagesAndPhases, FailedDecode,
                         testing::Values(Fault{0, 10}, Fault{1, 10}, Fault{2, 10}, Fault{0, 34}, Fault{1, 34},
                                         Fault{2, 34}));

}  // namespace
}  // namespace meshnet
