#include "lane.h"

#include "bounds.h"
#include "lane_bundle.h"

namespace meshnet {
namespace {

using seam::v1::FINISH_CANCELLED;
using seam::v1::FINISH_UNSPECIFIED;
using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_LOOP;
using seam::v1::PHASE_PREFILL;
using seam::v1::PHASE_UNSPECIFIED;

Status Unexpected() { return {Code::kMalformed, "a frame of a kind that this side never sends"}; }

}  // namespace

Lane::Lane(LaneSpec spec, LaneEngine * host) : spec_(std::move(spec)), host_(host), input_(spec_.n_embd) {}

Status Lane::OnFrame(Port from, Frame frame, uint64_t now_us) {
  if (frame.phase() == PHASE_LOOP) {
    return spec_.head && !spec_.tail && from == LoopSource() ? OnLoop(std::move(frame), now_us) : Unexpected();
  }
  if (from != Port::kUp) return Unexpected();
  if (frame.phase() != PHASE_UNSPECIFIED) return spec_.head ? Unexpected() : OnRun(frame, now_us);
  if (frame.has_turn()) return OnTurn(std::move(frame), now_us);
  if (frame.has_turn_tokens()) return OnTurnTokens(std::move(frame), now_us);
  if (frame.has_cancel()) return OnCancel(frame.cancel().turn(), now_us);
  return Unexpected();
}

Status Lane::OnTurn(Frame frame, uint64_t now_us) {
  const auto & turn = frame.turn();
  // A stage in the middle never learns that a turn is over: the finish goes from the tail to the head.
  if ((spec_.head || spec_.tail) && turn_.running()) return {Code::kTurnInvalid, "another turn is running"};
  if (turn.turn() <= last_turn_) return {Code::kTurnInvalid, "turn numbers must grow"};
  if (Status s = CheckTurn(turn, spec_.n_vocab); !s.ok()) return s;
  const uint32_t branch = spec_.head ? branch_ + 1 : frame.branch();
  if (branch <= branch_) return {Code::kBranchStale, "a turn must raise the branch"};
  DropInput();
  if (turn.start() > next_pos_) {
    return {Code::kPositionInvalid, "the turn starts at " + std::to_string(turn.start()) +
                                        ", the session's next position is " + std::to_string(next_pos_)};
  }
  if (uint64_t{turn.start()} + turn.n_tokens() > spec_.params.positions) {
    return {Code::kContextFull, "required " + std::to_string(uint64_t{turn.start()} + turn.n_tokens()) +
                                    " positions, granted " + std::to_string(spec_.params.positions)};
  }
  if (turn.start() < kv_pos_) {
    if (Status s = host_->Truncate(spec_.seq, static_cast<int32_t>(turn.start())); !s.ok()) return s;
    kv_pos_ = turn.start();
  }
  branch_ = branch;
  last_turn_ = turn.turn();
  next_pos_ = kv_pos_;
  end_pos_ = spec_.params.positions;
  generated_ = 0;
  cancelled_ = false;
  turn_.Begin(turn);
  waiting_since_us_ = now_us;
  if (spec_.tail) return {};
  frame.set_branch(branch_);
  return ports.Send(Port::kDown, std::move(frame));
}

Status Lane::OnTurnTokens(Frame frame, uint64_t now_us) {
  if (!turn_.running()) return turn_.Add(frame.turn_tokens(), spec_.n_vocab);
  if (Status s = turn_.Add(frame.turn_tokens(), spec_.n_vocab); !s.ok()) return s;
  waiting_since_us_ = now_us;
  if (turn_.state() == LaneTurn::State::kRun) {
    waiting_since_us_ = cancelled_ ? now_us : 0;
    ready_us_ = now_us;
  }
  if (spec_.tail) return {};
  frame.set_branch(branch_);
  return ports.Send(Port::kDown, std::move(frame));
}

Status Lane::OnCancel(uint32_t turn, uint64_t now_us) {
  if (!turn_.running() || cancelled_ || turn != turn_.number()) return {};
  if (spec_.tail) {
    host_->Recall(spec_.params.key);
    if (!turn_.running()) return {};  // that token was its last
  }
  DropInput();
  token_.reset();
  blocked_since_us_ = 0;
  if (spec_.tail) {
    Frame finish;
    finish.set_pos(kv_pos_);
    return Finish(std::move(finish), FINISH_CANCELLED);
  }
  if (spec_.head) {
    cancelled_ = true;
    waiting_since_us_ = now_us;
  } else {
    turn_.End();
    waiting_since_us_ = 0;
  }
  Frame cancel;
  cancel.set_branch(branch_);
  cancel.mutable_cancel()->set_turn(turn);
  return ports.Send(Port::kDown, std::move(cancel));
}

Status Lane::OnRun(const Frame & frame, uint64_t now_us) {
  const uint64_t payload =
      frame.phase() == PHASE_PREFILL && frame.tensors_size() > 0 ? frame.tensors(0).data().size() : 0;
  if (frame.branch() < branch_ || (frame.branch() == branch_ && !turn_.running())) {
    stale_frames_++;
    if (frame.chunk_end()) host_->Settle({frame.group(), frame.group_size()});
    ReturnCredit(payload);
    return {};
  }
  if (Status s = CheckRun(frame); !s.ok()) return s;
  std::vector<float> rows;
  const auto dtype = frame.phase() == PHASE_PREFILL ? spec_.params.prefill_dtype : spec_.params.decode_dtype;
  if (Status s = ReadBundle(frame, dtype, spec_.n_embd, &rows); !s.ok()) return s;
  input_.Push(frame, std::move(rows), payload, now_us);
  next_pos_ = frame.pos() + frame.n_tokens();
  return {};
}

Status Lane::CheckRun(const Frame & frame) const {
  if (frame.branch() > branch_) return {Code::kBranchStale, "no turn announced this branch"};
  if (turn_.state() != LaneTurn::State::kRun) return {Code::kTurnInvalid, "a run before the turn's token ids"};
  if (frame.pos() != next_pos_) {
    return {Code::kPositionInvalid, "the run starts at " + std::to_string(frame.pos()) +
                                        ", the lane's next position is " + std::to_string(next_pos_)};
  }
  const uint64_t end = uint64_t{frame.pos()} + frame.n_tokens();
  if (frame.n_tokens() == 0) return {Code::kMalformed, "a run without positions"};
  if (end > end_pos_) return {Code::kPositionInvalid, "the run leaves the granted positions"};
  if (frame.phase() == PHASE_PREFILL) {
    if (end > turn_.prompt_end()) return {Code::kPositionInvalid, "prefill beyond the prompt"};
    return {};
  }
  if (frame.phase() != PHASE_DECODE) return {Code::kMalformed, "unknown phase"};
  if (frame.pos() < turn_.prompt_end()) return {Code::kPositionInvalid, "decode inside the prompt"};
  // The tail draws one token after each row, and the next row needs it: more than one cannot be true.
  if (frame.n_tokens() != 1) return {Code::kShapeInvalid, "a decode run has one position"};
  if (input_.rows() > 0) return {Code::kRateExceeded, "more than one decode run in flight"};
  return {};
}

Status Lane::OnLoop(Frame frame, uint64_t now_us) {
  if (frame.branch() < branch_ || (frame.branch() == branch_ && !turn_.running())) {
    stale_frames_++;
    return {};
  }
  if (Status s = CheckLoop(frame); !s.ok()) return s;
  generated_ += frame.n_tokens();
  const auto finish = frame.finish();
  const uint32_t pos = frame.pos();
  const GroupKey group{frame.group(), frame.group_size()};
  const bool has_token = frame.n_tokens() == 1;
  const int32_t token = has_token ? frame.tokens(0) : -1;

  frame.clear_tensors();
  frame.clear_group();
  frame.clear_group_size();
  if (finish != FINISH_UNSPECIFIED) {
    if (has_token) host_->Settle(group);
    return Finish(std::move(frame), finish);
  }
  if (cancelled_) {
    host_->Settle(group);
  } else {
    token_ = token;
    token_group_ = group;
    ready_us_ = now_us;
    waiting_since_us_ = 0;
    if (pos >= end_pos_) return {Code::kPositionInvalid, "the tail went on without a position left"};
  }
  return ports.Send(Port::kUp, std::move(frame));
}

Status Lane::CheckLoop(const Frame & frame) const {
  if (frame.branch() > branch_) return {Code::kBranchStale, "no turn announced this branch"};
  if (!seam::v1::Finish_IsValid(frame.finish())) return {Code::kMalformed, "unknown finish"};
  const bool bare = frame.n_tokens() == 0 && frame.finish() == FINISH_CANCELLED;
  if (static_cast<uint32_t>(frame.tokens_size()) != frame.n_tokens() || (frame.n_tokens() != 1 && !bare)) {
    return {Code::kMalformed, "a loop frame carries one token, or none and the finish of a cancelled turn"};
  }
  if (bare) {
    if (!cancelled_) return {Code::kMalformed, "nobody cancelled this turn"};
    if (frame.pos() > kv_pos_ || frame.pos() < turn_.announced().start()) {
      return {Code::kPositionInvalid, "the tail names a position that it cannot have"};
    }
    return {};
  }
  const bool awaited = turn_.state() == LaneTurn::State::kRun && kv_pos_ >= turn_.prompt_end() && !token_;
  if (!awaited || frame.pos() != kv_pos_) {
    return {Code::kPositionInvalid,
            "a token for position " + std::to_string(frame.pos()) + ", the lane is at " + std::to_string(kv_pos_)};
  }
  const int32_t token = frame.tokens(0);
  if (token < 0 || token >= spec_.n_vocab) return {Code::kTokenInvalid, "the sampled id is not in the vocabulary"};
  if (generated_ >= turn_.announced().max_tokens()) return {Code::kLimitExceeded, "more tokens than the turn allows"};
  return {};
}

// Ends the turn; `frame` tells the next one on the way to the gateway.
Status Lane::Finish(Frame frame, seam::v1::Finish finish) {
  EndTurn(frame.pos());
  frame.set_phase(PHASE_LOOP);
  frame.set_branch(branch_);
  frame.set_finish(finish);
  return ports.Send(TokenPort(), std::move(frame));
}

// The session goes on at `pos` at most.
void Lane::EndTurn(uint32_t pos) {
  turn_.End();
  drawing_ = false;
  token_.reset();
  cancelled_ = false;
  waiting_since_us_ = 0;
  next_pos_ = pos;
}

Status Lane::OnClosed(Port from, uint64_t now_us) {
  if (from != Port::kUp && busy()) return {Code::kStreamEnded, "a neighbour closed in the middle of a turn"};
  closing_ = true;
  if (!busy()) return {};
  if (spec_.head || spec_.tail) return OnCancel(turn_.number(), now_us);
  DropInput();
  return {};
}

void Lane::DropInput() {
  const uint64_t payload = input_.Clear([this](const GroupKey & group) { host_->Settle(group); });
  ReturnCredit(payload);
  blocked_since_us_ = 0;
  if (!spec_.head) next_pos_ = kv_pos_;
}

void Lane::Abandon() {
  if (spec_.tail) host_->Recall(spec_.params.key);
  DropInput();
  if (token_) host_->Settle(token_group_);
}

void Lane::ReturnCredit(uint64_t payload) const {
  FrameSink * sink = ports.at(Port::kUp);
  if (payload > 0 && sink != nullptr) sink->Consumed(payload);
}

bool Lane::busy() const { return spec_.head || spec_.tail ? turn_.running() : input_.rows() > 0; }

bool Lane::generating() const {
  return spec_.head && turn_.state() == LaneTurn::State::kRun && !cancelled_ && kv_pos_ >= turn_.prompt_end();
}

Port Lane::TokenPort() const {
  if (spec_.head) return Port::kUp;
  return ports.at(Port::kLoop) != nullptr ? Port::kLoop : Port::kUp;
}

Port Lane::LoopSource() const { return spec_.params.n_stages == 2 ? Port::kDown : Port::kLoop; }

}  // namespace meshnet
