// The running half of Lane: which rows come next, and where their results go.
#include <algorithm>

#include "bounds.h"
#include "lane.h"
#include "lane_bundle.h"

namespace meshnet {

using seam::v1::PHASE_DECODE;
using seam::v1::PHASE_LOOP;
using seam::v1::PHASE_PREFILL;

uint32_t Lane::MaxUnit() const {
  const FrameSink * down = spec_.tail ? nullptr : ports.at(Port::kDown);
  return down == nullptr ? spec_.n_ubatch : std::clamp(down->MaxChunkTokens(), 1U, spec_.n_ubatch);
}

std::optional<Candidate> Lane::Ready() const {
  if (cancelled_ || drawing_ || turn_.state() != LaneTurn::State::kRun) return std::nullopt;
  const bool blocked = blocked_since_us_ != 0;
  if (!spec_.head) {
    const auto unit = input_.Front(MaxUnit());
    if (!unit) return std::nullopt;
    return Candidate{.decode = unit->phase == PHASE_DECODE,
                     .rows = unit->rows,
                     .complete = unit->complete,
                     .blocked = blocked,
                     .group = unit->group,
                     .since_us = unit->ready_us};
  }
  if (kv_pos_ < turn_.prompt_end()) {
    const uint32_t waiting = turn_.prompt_end() - kv_pos_;
    return Candidate{
        .rows = std::min(waiting, MaxUnit()), .waiting = waiting, .blocked = blocked, .since_us = ready_us_};
  }
  if (!token_) return std::nullopt;
  return Candidate{.decode = true, .rows = 1, .group = token_group_, .since_us = ready_us_};
}

LaneRun Lane::Plan(uint32_t rows) const {
  LaneRun run{.pos = kv_pos_, .rows = rows, .ready_us = ready_us_};
  if (spec_.head) {
    run.phase = kv_pos_ < turn_.prompt_end() ? PHASE_PREFILL : PHASE_DECODE;
  } else {
    const auto unit = input_.Front(rows);
    run.phase = unit->phase;
    run.chunk_end = unit->ends_chunk;
    run.group = unit->group;
    run.ready_us = unit->ready_us;
  }
  run.wants_logits = spec_.tail && run.pos + run.rows >= turn_.prompt_end();
  return run;
}

bool Lane::Reserve(const LaneRun & run, uint64_t now_us) {
  FrameSink * down = spec_.tail ? nullptr : ports.at(Port::kDown);
  if (down == nullptr || run.phase != PHASE_PREFILL) return true;
  if (down->ReserveCredit(RowBytes(spec_.params.prefill_dtype, spec_.n_embd) * run.rows)) return true;
  blocked_since_us_ = now_us;
  return false;
}

void Lane::Fill(const LaneRun & run, std::vector<Row> * rows, std::vector<float> * input) const {
  for (uint32_t i = 0; i < run.rows; i++) {
    Row row{.pos = static_cast<int32_t>(run.pos + i), .seq = spec_.seq};
    if (spec_.head) row.token = run.phase == PHASE_PREFILL ? turn_.id_at(run.pos + i) : *token_;
    row.want_logits = run.wants_logits && i + 1 == run.rows;
    rows->push_back(row);
  }
  if (!spec_.head) input_.Copy(run.rows, input);
}

void Lane::Advance(const LaneRun & run, uint64_t now_us) {
  kv_pos_ = run.pos + run.rows;
  blocked_since_us_ = 0;
  run_times_.Clear();
  if (spec_.head) {
    if (token_) host_->Settle(token_group_);
    token_.reset();
    sent_group_ = run.group.number;
    sent_us_ = now_us;
    ready_us_ = now_us;
    if (kv_pos_ >= turn_.prompt_end()) waiting_since_us_ = now_us;
    return;
  }
  run_times_ = input_.TimesAt(run.rows);
  ReturnCredit(input_.Pop(run.rows));
  host_->Settle(run.group);
}

Status Lane::Forward(const LaneRun & run, std::span<const float> output, const TickTimes & times) {
  const bool prefill = run.phase == PHASE_PREFILL;
  const auto dtype = prefill ? spec_.params.prefill_dtype : spec_.params.decode_dtype;
  const uint64_t row_bytes = RowBytes(dtype, spec_.n_embd);
  const auto step = static_cast<uint32_t>(std::max<uint64_t>(1, kMaxPayloadBytes / row_bytes));
  for (uint32_t done = 0; done < run.rows;) {
    const uint32_t rows = std::min(step, run.rows - done);
    Frame frame;
    frame.set_phase(run.phase);
    frame.set_branch(branch_);
    frame.set_pos(run.pos + done);
    frame.set_n_tokens(rows);
    frame.set_group(run.group.number);
    frame.set_group_size(run.group.size);
    frame.set_chunk_end(run.chunk_end && done + rows == run.rows);
    WriteBundle(output.subspan(size_t{done} * spec_.n_embd, size_t{rows} * spec_.n_embd), dtype, spec_.n_embd, &frame);
    AddTimes(run, times, &frame);
    if (Status s = ports.Send(Port::kDown, std::move(frame)); !s.ok()) return s;
    done += rows;
  }
  return {};
}

Status Lane::Announce(const LaneRun & run, const TickTimes & times, Emission * out) {
  out->sink = ports.shared(TokenPort());
  if (!out->sink) return {Code::kSeamUnreachable, "the lane has no open stream for its tokens"};
  const auto & turn = turn_.announced();
  generated_++;
  drawing_ = true;
  Frame & frame = out->frame;
  frame.set_phase(PHASE_LOOP);
  frame.set_branch(branch_);
  frame.set_pos(kv_pos_);
  frame.set_n_tokens(1);
  out->timed = AddTimes(run, times, &frame);
  out->computed_us = times.start_us + times.compute_us;
  out->grouped = !spec_.head;
  if (out->grouped) frame.set_group(run.group.number);
  out->ignore_end = turn.ignore_end();
  if (generated_ >= turn.max_tokens()) {
    out->limit = seam::v1::FINISH_MAX_TOKENS;
  } else if (kv_pos_ >= end_pos_) {
    out->limit = seam::v1::FINISH_CONTEXT_FULL;
  }
  return {};
}

void Lane::Accept(const Drawn & drawn, seam::v1::Finish finish, uint64_t now_us) {
  drawing_ = false;
  if (finish != seam::v1::FINISH_UNSPECIFIED) return EndTurn(kv_pos_);
  if (!spec_.head) return;
  token_ = drawn.token;
  token_group_ = {};
  ready_us_ = now_us;
  waiting_since_us_ = 0;
}

Status Lane::Emit(const LaneRun & run, const Drawn & drawn, const TickTimes & times, uint32_t n_drawn,
                  uint64_t now_us) {
  Emission emission;
  if (Status s = Announce(run, times, &emission); !s.ok()) return s;
  const auto finish = Complete(drawn, n_drawn, now_us, &emission);
  emission.sink->Send(std::move(emission.frame));
  Accept(drawn, finish, now_us);
  return {};
}

bool Lane::in_ring() const {
  return spec_.head && turn_.state() == LaneTurn::State::kRun && kv_pos_ >= turn_.prompt_end() && !token_;
}

uint64_t Lane::deadline_us() const {
  uint64_t since = UINT64_MAX;
  if (waiting_since_us_ != 0) since = waiting_since_us_;
  if (blocked_since_us_ != 0) since = std::min(since, blocked_since_us_);
  if (!spec_.head) {
    const auto unit = input_.Front(spec_.n_ubatch);
    if (unit && !unit->complete) since = std::min(since, unit->since_us);
  }
  return since == UINT64_MAX ? since : since + spec_.step_deadline_us;
}

bool Lane::AddTimes(const LaneRun & run, const TickTimes & times, Frame * frame) const {
  *frame->mutable_times() = run_times_;
  if (frame->times_size() >= static_cast<int>(kMaxStageTimes)) return false;
  auto * own = frame->add_times();
  own->set_queue_us(static_cast<uint32_t>(times.start_us - std::min(times.start_us, run.ready_us)));
  own->set_compute_us(static_cast<uint32_t>(times.compute_us));
  own->set_serialize_us(static_cast<uint32_t>(times.serialize_us));
  return true;
}

}  // namespace meshnet
