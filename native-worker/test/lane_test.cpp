// The lane's state machine alone: every frame in, every frame out, in order.
#include "lane.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "lane_bundle.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::FINISH_END;
using seam::v1::FINISH_UNSPECIFIED;
using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_LOOP;
using seam::v1::PHASE_PREFILL;

constexpr uint32_t kWidth = 4;
constexpr int32_t kVocab = 100;

// One line for each thing that a lane did, on any port, in order.
using Log = std::vector<std::string>;

std::string Describe(const Frame & f) {
  std::string s;
  if (f.has_turn()) s = "turn " + std::to_string(f.turn().turn());
  if (f.has_turn_tokens()) s = "ids " + std::to_string(f.turn_tokens().ids_size());
  if (f.has_cancel()) s = "cancel " + std::to_string(f.cancel().turn());
  if (f.phase() == PHASE_PREFILL) s = "prefill " + std::to_string(f.pos()) + "+" + std::to_string(f.n_tokens());
  if (f.phase() == PHASE_DECODE) s = "decode " + std::to_string(f.pos());
  if (f.phase() == PHASE_LOOP) {
    s = "loop " + std::to_string(f.pos());
    if (f.tokens_size() > 0) s += "=" + std::to_string(f.tokens(0));
    if (f.finish() != FINISH_UNSPECIFIED) s += " finish " + std::to_string(f.finish());
  }
  if (f.chunk_end()) s += " end";
  return s + " b" + std::to_string(f.branch());
}

class Sink final : public FrameSink {
 public:
  Sink(Log * log, std::string name) : log_(log), name_(std::move(name)) {}
  void Send(Frame frame) override { log_->push_back(name_ + ": " + Describe(frame)); }
  bool ReserveCredit(uint64_t bytes) override {
    if (credit < bytes) return false;
    credit -= bytes;
    return true;
  }
  void Consumed(uint64_t bytes) override { consumed += bytes; }
  void SendClose() override { log_->push_back(name_ + ": close"); }
  uint32_t MaxChunkTokens() const override { return max_chunk; }

  uint64_t credit = UINT64_MAX;
  uint64_t consumed = 0;
  uint32_t max_chunk = UINT32_MAX;

 private:
  Log * log_;
  std::string name_;
};

class Host final : public LaneEngine {
 public:
  explicit Host(Log * log) : log_(log) {}
  Status Truncate(int32_t seq, int32_t keep) override {
    if (keep < min_rewind) return {Code::kRewindLost, ""};
    log_->push_back("truncate " + std::to_string(seq) + " to " + std::to_string(keep));
    return {};
  }
  void Settle(const GroupKey & group) override { settled.push_back(group.number); }
  void Recall(const LaneKey &) override {
    if (on_recall) on_recall();
  }

  int32_t min_rewind = 0;
  std::vector<uint64_t> settled;
  std::function<void()> on_recall;

 private:
  Log * log_;
};

// A lane at one place of a route, with recording sinks all around.
struct Stand {
  Stand(bool head, bool tail, uint32_t n_stages, uint32_t stage) : host(&log) {
    LaneSpec spec{.params = {.key = {"session", 1, stage}, .n_stages = n_stages, .positions = 32},
                  .head = head,
                  .tail = tail,
                  .n_embd = kWidth,
                  .n_vocab = kVocab,
                  .n_ubatch = 8,
                  .seq = 3,
                  .step_deadline_us = 1000};
    lane = std::make_unique<Lane>(spec, &host);
    lane->ports.Attach(Port::kUp, up);
    if (!tail) lane->ports.Attach(Port::kDown, down);
    if (n_stages > 2 && (head || tail)) lane->ports.Attach(Port::kLoop, loop);
  }

  Status In(Port port, Frame frame) { return lane->OnFrame(port, std::move(frame), now); }
  Status Turn(uint32_t number, uint32_t start, uint32_t n, uint32_t branch = 0, uint32_t max_tokens = 5) {
    Frame frame;
    frame.set_branch(branch);
    auto * turn = frame.mutable_turn();
    turn->set_turn(number);
    turn->set_start(start);
    turn->set_n_tokens(n);
    turn->set_max_tokens(max_tokens);
    turn->set_logprobs(-1);
    return In(Port::kUp, frame);
  }
  Status Ids(uint32_t number, uint32_t n, bool last = true) {
    Frame frame;
    frame.mutable_turn_tokens()->set_turn(number);
    for (uint32_t i = 0; i < n; i++) frame.mutable_turn_tokens()->add_ids(static_cast<int32_t>(10 + i));
    frame.mutable_turn_tokens()->set_last(last);
    return In(Port::kUp, frame);
  }
  Status Cancel(uint32_t number) {
    Frame frame;
    frame.mutable_cancel()->set_turn(number);
    return In(Port::kUp, frame);
  }
  Status Activation(seam::v1::Phase phase, uint32_t pos, uint32_t n, uint32_t branch, bool end = true) {
    Frame frame;
    frame.set_phase(phase);
    frame.set_branch(branch);
    frame.set_pos(pos);
    frame.set_n_tokens(n);
    frame.set_group(pos + 1);
    frame.set_group_size(1);
    frame.set_chunk_end(end);
    WriteBundle(std::vector<float>(n * kWidth, 1.0F), seam::v1::DTYPE_F32, kWidth, &frame);
    return In(Port::kUp, frame);
  }
  Status Loop(Port port, uint32_t pos, int32_t token, uint32_t branch, seam::v1::Finish finish = FINISH_UNSPECIFIED) {
    Frame frame;
    frame.set_phase(PHASE_LOOP);
    frame.set_branch(branch);
    frame.set_pos(pos);
    if (token >= 0) {
      frame.set_n_tokens(1);
      frame.add_tokens(token);
    }
    frame.set_finish(finish);
    return In(port, frame);
  }
  // Runs what is ready, as the engine would; a tail draws `token`.
  void Run(int32_t token = -1) {
    const auto ready = lane->Ready();
    ASSERT_TRUE(ready && ready->complete);
    const LaneRun run = lane->Plan(ready->rows);
    ASSERT_TRUE(lane->Reserve(run, now));
    std::vector<Row> rows;
    std::vector<float> input;
    lane->Fill(run, &rows, &input);
    ASSERT_EQ(rows.size(), run.rows);
    for (const Row & row : rows) last_input = row.token;
    lane->Advance(run, now);
    if (!lane->spec().tail) {
      ASSERT_TRUE(lane->Forward(run, std::vector<float>(run.rows * kWidth), {}).ok());
    } else if (run.wants_logits) {
      ASSERT_TRUE(lane->Emit(run, {.token = token, .end_of_generation = token == 2, .logprobs = {}}, {}, 1, now).ok());
    }
  }
  Log Take() { return std::exchange(log, {}); }

  Log log;
  Host host;
  std::shared_ptr<Sink> up = std::make_shared<Sink>(&log, "up");
  std::shared_ptr<Sink> down = std::make_shared<Sink>(&log, "down");
  std::shared_ptr<Sink> loop = std::make_shared<Sink>(&log, "loop");
  std::unique_ptr<Lane> lane;
  uint64_t now = 1000;
  int32_t last_input = -1;
};

struct Head : Stand {
  explicit Head(uint32_t n_stages = 2) : Stand(true, n_stages == 1, n_stages, 0) {}
};
struct Middle : Stand {
  Middle() : Stand(false, false, 3, 1) {}
};
struct Tail : Stand {
  explicit Tail(uint32_t n_stages = 2) : Stand(false, true, n_stages, n_stages - 1) {}
};

TEST(HeadLane, RunsATurnStepByStep) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 11).ok());
  ASSERT_TRUE(t.Ids(1, 5, false).ok());
  EXPECT_FALSE(t.lane->Ready());
  ASSERT_TRUE(t.Ids(1, 6).ok());
  t.Run();
  t.Run();
  EXPECT_EQ(t.Take(), (Log{"down: turn 1 b1", "down: ids 5 b1", "down: ids 6 b1", "down: prefill 0+8 end b1",
                           "down: prefill 8+3 end b1"}));
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_TRUE(t.lane->generating());
  ASSERT_TRUE(t.Loop(Port::kDown, 11, 42, 1).ok());
  t.Run();
  EXPECT_EQ(t.last_input, 42);
  ASSERT_TRUE(t.Loop(Port::kDown, 12, 2, 1, FINISH_END).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 11=42 b1", "down: decode 11 end b1", "up: loop 12=2 finish 1 b1"}));
  EXPECT_FALSE(t.lane->busy());

  ASSERT_TRUE(t.Turn(2, 4, 2).ok());
  EXPECT_EQ(t.Take(), (Log{"truncate 3 to 4", "down: turn 2 b2"}));
}

TEST(HeadLane, RefusesTurnsOutOfOrder) {
  EXPECT_EQ(Head().Turn(1, 1, 4).code(), Code::kPositionInvalid);
  EXPECT_EQ(Head().Turn(1, 0, 33).code(), Code::kContextFull);
  EXPECT_EQ(Head().Turn(0, 0, 4).code(), Code::kTurnInvalid);
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 4).ok());
  EXPECT_EQ(t.Turn(2, 0, 4).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(2, 4).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(1, 4, false).code(), Code::kTurnInvalid);
  EXPECT_EQ(t.Ids(1, 5).code(), Code::kTurnInvalid);
}

TEST(HeadLane, TakesLongerTurnsOnceItHasMorePositions) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 8, 2, 1, FINISH_END).ok());
  t.lane->Extend(64);
  t.lane->Extend(16);
  ASSERT_TRUE(t.Turn(2, 8, 56).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 8, -1, 2, FINISH_CANCELLED).ok());
  EXPECT_EQ(t.Turn(3, 8, 57).code(), Code::kContextFull);
}

TEST(HeadLane, RefusesWhatARewindCannotReach) {
  Head t;
  t.host.min_rewind = 6;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 8, 2, 1, FINISH_END).ok());
  EXPECT_EQ(t.Turn(2, 5, 1).code(), Code::kRewindLost);
}

TEST(HeadLane, SendsOneFinishWhenCancelMeetsATokenOnItsWay) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 4).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  t.Run();
  t.Take();
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Cancel(7).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, 42, 1).ok());  // was drawn before the tail knew
  EXPECT_FALSE(t.lane->Ready());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, -1, 1, FINISH_CANCELLED).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 4, -1, 1, FINISH_CANCELLED).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_EQ(t.Take(), (Log{"down: cancel 1 b1", "up: loop 4=42 b1", "up: loop 4 finish 4 b1"}));
  EXPECT_EQ(t.lane->stale_frames(), 1U);
}

TEST(HeadLane, GoesBackToWhereACancelledTailWas) {
  Head t;
  ASSERT_TRUE(t.Turn(1, 0, 8).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  t.Run();
  ASSERT_TRUE(t.Cancel(1).ok());
  ASSERT_TRUE(t.Loop(Port::kDown, 3, -1, 1, FINISH_CANCELLED).ok());
  t.Take();
  EXPECT_EQ(t.Turn(2, 4, 1).code(), Code::kPositionInvalid);
  ASSERT_TRUE(t.Turn(2, 3, 1).ok());
  EXPECT_EQ(t.Take(), (Log{"truncate 3 to 3", "down: turn 2 b2"}));
}

TEST(HeadLane, ChecksWhatTheTailSends) {
  const auto ready = [](Head & t) {
    ASSERT_TRUE(t.Turn(1, 0, 4, 0, 2).ok());
    ASSERT_TRUE(t.Ids(1, 4).ok());
    t.Run();
  };
  struct Case {
    Code code;
    uint32_t pos;
    int32_t token;
    uint32_t branch;
    seam::v1::Finish finish;
  };
  for (const Case & c :
       {Case{Code::kPositionInvalid, 5, 1, 1, FINISH_UNSPECIFIED},
        Case{Code::kBranchStale, 4, 1, 2, FINISH_UNSPECIFIED},
        Case{Code::kTokenInvalid, 4, kVocab, 1, FINISH_UNSPECIFIED}, Case{Code::kMalformed, 4, -1, 1, FINISH_END},
        Case{Code::kMalformed, 4, -1, 1, FINISH_CANCELLED},
        Case{Code::kMalformed, 4, 1, 1, static_cast<seam::v1::Finish>(9)}}) {
    Head t;
    ready(t);
    EXPECT_EQ(t.Loop(Port::kDown, c.pos, c.token, c.branch, c.finish).code(), c.code);
  }
  Head t;
  ready(t);
  ASSERT_TRUE(t.Loop(Port::kDown, 4, 1, 1).ok());
  EXPECT_EQ(t.Loop(Port::kDown, 4, 1, 1).code(), Code::kPositionInvalid);  // twice
  t.Run();
  ASSERT_TRUE(t.Loop(Port::kDown, 5, 1, 1).ok());
  t.Run();
  EXPECT_EQ(t.Loop(Port::kDown, 6, 1, 1).code(), Code::kLimitExceeded);  // a third of two
  EXPECT_EQ(t.Loop(Port::kLoop, 6, 1, 1).code(), Code::kMalformed);
  EXPECT_EQ(Head(3).Loop(Port::kDown, 0, 1, 0).code(), Code::kMalformed);
}

TEST(HeadLane, SitsOutWithoutCreditAndTimesOut) {
  Head t;
  t.down->credit = 8 * kWidth * 4;
  ASSERT_TRUE(t.Turn(1, 0, 16).ok());
  ASSERT_TRUE(t.Ids(1, 16).ok());
  EXPECT_EQ(t.lane->deadline_us(), UINT64_MAX);
  t.Run();
  const LaneRun next = t.lane->Plan(8);
  EXPECT_FALSE(t.lane->Reserve(next, t.now));
  EXPECT_TRUE(t.lane->Ready()->blocked);
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);
  t.lane->Unblock();
  EXPECT_FALSE(t.lane->Ready()->blocked);
  t.down->credit = 1 << 20;
  t.Run();
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);  // now the tail owes a token
}

TEST(HeadLane, KeepsToTheNextStagesChunk) {
  Head t;
  t.down->max_chunk = 3;
  ASSERT_TRUE(t.Turn(1, 0, 7).ok());
  ASSERT_TRUE(t.Ids(1, 7).ok());
  t.Run();
  t.Run();
  t.Run();
  const auto log = t.Take();
  EXPECT_EQ(Log(log.end() - 3, log.end()),
            (Log{"down: prefill 0+3 end b1", "down: prefill 3+3 end b1", "down: prefill 6+1 end b1"}));
}

TEST(HeadLane, AloneItFeedsItself) {
  Head t(1);
  ASSERT_TRUE(t.Turn(1, 0, 4, 0, 2).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  t.Run(42);
  t.Run(43);
  EXPECT_EQ(t.last_input, 42);
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=42 b1", "up: loop 5=43 finish 2 b1"}));
  ASSERT_TRUE(t.Turn(2, 5, 4, 0, 2).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 5 finish 4 b2"}));
  ASSERT_TRUE(t.Ids(2, 4).ok());  // they were under way
  EXPECT_FALSE(t.lane->Ready());
}

TEST(MiddleLane, ForwardsInOrderAndSplitsWhatIsTooLong) {
  Middle t;
  ASSERT_TRUE(t.Turn(1, 0, 12, 1).ok());
  ASSERT_TRUE(t.Ids(1, 12).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 5, 1, false).ok());
  EXPECT_FALSE(t.lane->Ready()->complete);
  EXPECT_EQ(t.lane->deadline_us(), t.now + 1000);
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 5, 7, 1).ok());
  t.Run();
  EXPECT_EQ(t.up->consumed, 5 * kWidth * 4);
  t.Run();
  EXPECT_EQ(t.up->consumed, 12 * kWidth * 4);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 12, 1, 1).ok());
  t.Run();
  EXPECT_EQ(t.Take(), (Log{"down: turn 1 b1", "down: ids 12 b1", "down: prefill 0+8 b1", "down: prefill 8+4 end b1",
                           "down: decode 12 end b1"}));
}

TEST(MiddleLane, DropsWhatACancelOrATurnOvertakes) {
  Middle t;
  ASSERT_TRUE(t.Turn(1, 0, 8, 1).ok());
  ASSERT_TRUE(t.Ids(1, 8).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_EQ(t.host.settled, (std::vector<uint64_t>{1}));
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 4, 4, 1).ok());  // stale
  EXPECT_EQ(t.up->consumed, 8 * kWidth * 4);
  EXPECT_EQ(t.lane->stale_frames(), 1U);
  t.Take();

  ASSERT_TRUE(t.Turn(2, 0, 4, 2).ok());
  ASSERT_TRUE(t.Ids(2, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 2).ok());
  t.Run();
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 4, 1, 2).ok());
  ASSERT_TRUE(t.Turn(3, 2, 4, 3).ok());
  EXPECT_FALSE(t.lane->Ready());
  EXPECT_EQ(t.Take(), (Log{"down: turn 2 b2", "down: ids 4 b2", "down: prefill 0+4 end b2", "truncate 3 to 2",
                           "down: turn 3 b3"}));
  EXPECT_EQ(t.Turn(4, 2, 4, 3).code(), Code::kBranchStale);
}

TEST(MiddleLane, RefusesRunsThatDoNotFollow) {
  const auto begun = [](Middle & t) {
    ASSERT_TRUE(t.Turn(1, 0, 8, 1).ok());
    ASSERT_TRUE(t.Ids(1, 8).ok());
  };
  struct Case {
    Code code;
    seam::v1::Phase phase;
    uint32_t pos, n, branch;
  };
  for (const Case & c :
       {Case{Code::kPositionInvalid, PHASE_PREFILL, 1, 4, 1}, Case{Code::kBranchStale, PHASE_PREFILL, 0, 4, 2},
        Case{Code::kPositionInvalid, PHASE_PREFILL, 0, 9, 1}, Case{Code::kPositionInvalid, PHASE_DECODE, 0, 1, 1}}) {
    Middle t;
    begun(t);
    EXPECT_EQ(t.Activation(c.phase, c.pos, c.n, c.branch).code(), c.code);
  }
  Middle early;
  ASSERT_TRUE(early.Turn(1, 0, 8, 1).ok());
  EXPECT_EQ(early.Activation(PHASE_PREFILL, 0, 4, 1).code(), Code::kTurnInvalid);
  Middle t;
  begun(t);
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 8, 1).ok());
  t.Run();
  EXPECT_EQ(t.Activation(PHASE_DECODE, 8, 2, 1).code(), Code::kShapeInvalid);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 8, 1, 1).ok());
  EXPECT_EQ(t.Activation(PHASE_DECODE, 9, 1, 1).code(), Code::kRateExceeded);
}

TEST(TailLane, DrawsAfterThePromptAndEveryStep) {
  Tail t(3);
  ASSERT_TRUE(t.Turn(1, 0, 10, 1, 3).ok());
  ASSERT_TRUE(t.Ids(1, 10).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 8, 1).ok());
  t.Run(7);
  EXPECT_TRUE(t.Take().empty());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 8, 2, 1).ok());
  t.Run(7);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 10, 1, 1).ok());
  t.Run(8);
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 11, 1, 1).ok());
  t.Run(9);
  EXPECT_EQ(t.Take(), (Log{"loop: loop 10=7 b1", "loop: loop 11=8 b1", "loop: loop 12=9 finish 2 b1"}));
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_TRUE(t.Take().empty());
}

TEST(TailLane, EndsAtTheEndTokenAndAnswersCancel) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  t.Run(2);
  ASSERT_TRUE(t.Turn(2, 4, 4, 2).ok());
  EXPECT_EQ(t.Turn(3, 4, 4, 3).code(), Code::kTurnInvalid);
  ASSERT_TRUE(t.Ids(2, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 4, 2, 2, false).ok());
  ASSERT_TRUE(t.Cancel(2).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=2 finish 1 b1", "up: loop 4 finish 4 b2"}));
}

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

TEST(TailLane, EndsATurnWhereItCouldWhenItBegan) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 31, 1).ok());
  ASSERT_TRUE(t.Ids(1, 31).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 31, 1).ok());
  for (int i = 0; i < 4; i++) t.Run(6);
  t.lane->Extend(64);  // the head may not have heard of it
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 31, 1, 1).ok());
  t.Run(7);
  EXPECT_EQ(t.Take(), (Log{"up: loop 31=6 b1", "up: loop 32=7 finish 3 b1"}));
  ASSERT_TRUE(t.Turn(2, 32, 32, 2).ok());
}

TEST(TailLane, RunsNothingWhileItsTokenIsDrawn) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  const LaneRun run = t.lane->Plan(4);
  t.lane->Advance(run, t.now);
  Emission emission;
  ASSERT_TRUE(t.lane->Announce(run, {}, &emission).ok());
  // From a head that does not wait for the token.
  ASSERT_TRUE(t.Activation(PHASE_DECODE, 4, 1, 1).ok());
  EXPECT_FALSE(t.lane->Ready().has_value());
  t.lane->Accept({.token = 7, .end_of_generation = false, .logprobs = {}}, FINISH_UNSPECIFIED, t.now);
  EXPECT_TRUE(t.lane->Ready().has_value());
}

TEST(TailLane, SendsOneFinishWhenACancelMeetsItsLastToken) {
  Tail t;
  ASSERT_TRUE(t.Turn(1, 0, 4, 1, 1).ok());
  ASSERT_TRUE(t.Ids(1, 4).ok());
  ASSERT_TRUE(t.Activation(PHASE_PREFILL, 0, 4, 1).ok());
  const LaneRun run = t.lane->Plan(4);
  t.lane->Advance(run, t.now);
  const Drawn drawn{.token = 7, .end_of_generation = false, .logprobs = {}};
  Emission emission;
  ASSERT_TRUE(t.lane->Announce(run, {}, &emission).ok());
  const auto finish = Complete(drawn, 1, t.now, &emission);
  emission.sink->Send(std::move(emission.frame));
  t.host.on_recall = [&] { t.lane->Accept(drawn, finish, t.now); };
  ASSERT_TRUE(t.Cancel(1).ok());
  EXPECT_EQ(t.Take(), (Log{"up: loop 4=7 finish 2 b1"}));
  EXPECT_FALSE(t.lane->busy());
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
