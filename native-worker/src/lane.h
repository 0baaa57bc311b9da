// Lane: what one session is at one stage: its positions, its turn, and which frame means what. Knows no llama_context:
// the engine runs the rows that a lane plans and tells it the results.
// Threads: the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emission.h"
#include "engine.h"
#include "lane_input.h"
#include "lane_ports.h"
#include "lane_turn.h"
#include "scheduler.h"
#include "shard.h"

namespace meshnet {

// What a lane is told at its birth.
struct LaneSpec {
  LaneParams params;
  bool head = false;
  bool tail = false;
  uint32_t n_embd = 0;
  int32_t n_vocab = 0;
  uint32_t n_ubatch = 0;
  int32_t seq = 0;
  uint64_t step_deadline_us = 0;
};

// What a lane asks of the engine.
class LaneEngine {
 public:
  virtual ~LaneEngine() = default;
  // Keeps positions [0, keep). kRewindLost.
  virtual Status Truncate(int32_t seq, int32_t keep) = 0;
  // One unit of the group will not come to run here.
  virtual void Settle(const GroupKey & group) = 0;
  // The token that is being drawn for the lane is not wanted: nothing of it leaves any more. If it has left, the lane
  // hears of it now, by Accept.
  virtual void Recall(const LaneKey & lane) = 0;
};

// Rows of one lane in one tick.
struct LaneRun {
  seam::v1::Phase phase = seam::v1::PHASE_UNSPECIFIED;
  uint32_t pos = 0;
  uint32_t rows = 0;
  bool chunk_end = true;
  bool wants_logits = false;  // of the last row
  GroupKey group{};           // of the head's tick; a head stamps it when the tick is known
  uint64_t ready_us = 0;
};

// How long a tick took, for StageTimes.
struct TickTimes {
  uint64_t start_us = 0;
  uint64_t compute_us = 0;
  uint64_t serialize_us = 0;
};

class Lane {
 public:
  // `host` outlives the lane.
  Lane(LaneSpec spec, LaneEngine * host);

  // A frame, in order per port. Anything but ok ends the lane. Error frames are not for the lane.
  Status OnFrame(Port from, Frame frame, uint64_t now_us);
  // The other side closed in order. kStreamEnded: in the middle of something.
  Status OnClosed(Port from, uint64_t now_us);

  // Turns from now on may use so many positions; never fewer than before.
  void Extend(uint32_t positions) { spec_.params.positions = std::max(spec_.params.positions, positions); }

  // The lane is about to end: nobody need wait for what it would have run.
  void Abandon();

  // What could run now. nullopt: nothing.
  std::optional<Candidate> Ready() const;
  // The run of the first `rows` ready rows. REQUIRES Ready() with that many.
  LaneRun Plan(uint32_t rows) const;
  // Takes the credit that the run's output needs; otherwise the lane is blocked until Unblock.
  bool Reserve(const LaneRun & run, uint64_t now_us);
  void Unblock() { blocked_since_us_ = 0; }
  // Appends the run's rows, and for a later stage what goes into them, [rows, n_embd].
  void Fill(const LaneRun & run, std::vector<Row> * rows, std::vector<float> * input) const;
  // The shard holds the run's positions now.
  void Advance(const LaneRun & run, uint64_t now_us);
  // A stage that is not the tail: the run's output, [rows, n_embd], goes to the next stage.
  Status Forward(const LaneRun & run, std::span<const float> output, const TickTimes & times);
  // The tail: a token is to be drawn after the run; the rest of its frame. kSeamUnreachable.
  Status Announce(const LaneRun & run, const TickTimes & times, Emission * out);
  // The announced token was drawn, and its frame has left. `finish`: of the turn, as Complete gave it.
  void Accept(const Drawn & drawn, seam::v1::Finish finish, uint64_t now_us);
  // All of this for a token that is known. n_drawn: lanes of this tick that drew one.
  Status Emit(const LaneRun & run, const Drawn & drawn, const TickTimes & times, uint32_t n_drawn, uint64_t now_us);

  // True when a turn is known to run, or rows are queued.
  bool busy() const;
  // The session is to be closed and nothing holds it up.
  bool wants_close() const { return closing_ && !busy(); }
  // Head: between the first sampled token and the finish.
  bool generating() const;
  // Head: a step is on its way and its token has not come.
  bool in_ring() const;
  // Head: the tick that its last rows were in, and when they left.
  uint64_t sent_group() const { return sent_group_; }
  uint64_t sent_us() const { return sent_us_; }
  // When the lane has waited too long; UINT64_MAX: it waits for nobody.
  uint64_t deadline_us() const;

  const LaneSpec & spec() const { return spec_; }
  const LaneTurn & turn() const { return turn_; }
  uint32_t kv_pos() const { return kv_pos_; }
  uint64_t stale_frames() const { return stale_frames_; }

  LanePorts ports;

 private:
  Status OnTurn(Frame frame, uint64_t now_us);
  Status OnTurnTokens(Frame frame, uint64_t now_us);
  Status OnCancel(uint32_t turn, uint64_t now_us);
  Status OnRun(const Frame & frame, uint64_t now_us);
  Status CheckRun(const Frame & frame) const;
  Status OnLoop(Frame frame, uint64_t now_us);
  Status CheckLoop(const Frame & frame) const;
  Status Finish(Frame frame, seam::v1::Finish finish);
  void EndTurn(uint32_t pos);
  void DropInput();
  void ReturnCredit(uint64_t payload) const;
  Port TokenPort() const;
  Port LoopSource() const;
  uint32_t MaxUnit() const;
  // False: the frame has no room for them.
  bool AddTimes(const LaneRun & run, const TickTimes & times, Frame * frame) const;

  LaneSpec spec_;
  LaneEngine * host_;
  LaneTurn turn_;
  LaneInput input_;  // later stages
  uint32_t branch_ = 0;
  uint32_t last_turn_ = 0;
  uint32_t kv_pos_ = 0;     // positions that the shard holds
  uint32_t next_pos_ = 0;   // of the session, where a new turn may start at most
  uint32_t end_pos_ = 0;    // of this turn; fixed when it begins, because not all stages hear of an Extend at once
  uint32_t generated_ = 0;  // tokens of this turn
  bool cancelled_ = false;  // head: Cancel is on its way to the tail
  bool closing_ = false;
  bool drawing_ = false;  // tail: a token was announced and is not accepted yet
  uint64_t stale_frames_ = 0;

  std::optional<int32_t> token_;  // head: sampled, to be run at kv_pos_
  GroupKey token_group_;
  uint64_t sent_group_ = 0;
  uint64_t sent_us_ = 0;
  uint64_t ready_us_ = 0;                                               // head: since when its next step could run
  uint64_t waiting_since_us_ = 0;                                       // for somebody else's next move; 0: not waiting
  uint64_t blocked_since_us_ = 0;                                       // for credit; 0: not blocked
  google::protobuf::RepeatedPtrField<seam::v1::StageTimes> run_times_;  // of the run that Advance took out of input_
};

}  // namespace meshnet
