#include "tick.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace meshnet {
namespace {

// Runs `step`: what throws fails the one lane that it was for, not the tick.
template <typename Step>
Status Guarded(Code code, Step step) {
  try {
    return step();
  } catch (const std::exception & e) {
    return {code, e.what()};
  }
}

}  // namespace

uint64_t NowUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()) + 1;
}

void TickRunner::Run(std::span<TickLane> lanes) {
  TickTimes times{.start_us = NowUs()};
  Status status = Decode(lanes);
  if (status.ok()) {
    times.compute_us = NowUs() - times.start_us;
    Deliver(lanes, times);
    return;
  }
  if (lanes.size() == 1) {
    lanes.front().status = status;
    return;
  }
  for (TickLane & lane : lanes) lane.status = Restore(lane);
  for (TickLane & lane : lanes) {
    if (!lane.status.ok()) continue;
    const std::span<TickLane> alone(&lane, 1);
    lane.run.group.size = 1;
    times.start_us = NowUs();
    lane.status = Decode(alone);
    if (lane.status.ok()) {
      times.compute_us = NowUs() - times.start_us;
      Deliver(alone, times);
    }
  }
}

Status TickRunner::Decode(std::span<TickLane> lanes) {
  return Guarded(Code::kDecodeFailed, [&]() -> Status {
    rows_.clear();
    input_.clear();
    for (const TickLane & lane : lanes) {
      if (Status s = sequences_->Apply(lane.lane->spec().seq); !s.ok()) return s;
      lane.lane->Fill(lane.run, &rows_, &input_);
    }
    return shard_->Decode(rows_, input_.empty() ? nullptr : input_.data());
  });
}

Status TickRunner::Restore(const TickLane & lane) {
  return sequences_->Truncate(lane.lane->spec().seq, static_cast<int32_t>(lane.run.pos));
}

void TickRunner::Deliver(std::span<TickLane> lanes, TickTimes times) {
  uint32_t decoded = 0;
  uint32_t prefilled = 0;
  std::vector<size_t> last_rows;
  size_t n_rows = 0;
  for (TickLane & lane : lanes) {
    lane.lane->Advance(lane.run, times.start_us + times.compute_us);
    (lane.run.phase == seam::v1::PHASE_DECODE ? decoded : prefilled) += lane.run.rows;
    n_rows += lane.run.rows;
    last_rows.push_back(n_rows - 1);
  }
  std::vector<Drawn> drawn(lanes.size());
  const auto takes_time = [](const TickLane & lane) { return lane.run.wants_logits && !lane.sampler->quick(); };
  if (!shard_->info().is_tail) {
    Forward(lanes, times);
  } else if (pool_ != nullptr && std::any_of(lanes.begin(), lanes.end(), takes_time)) {
    DrawInPool(lanes, last_rows, times);
  } else {
    DrawHere(lanes, last_rows, times, &drawn);
  }
  meter_->Tick(decoded, prefilled, times.compute_us);
  n_ticks_++;
  if (on_tick_) Trace(lanes, drawn);
}

void TickRunner::Forward(std::span<TickLane> lanes, TickTimes times) {
  const auto width = static_cast<size_t>(shard_->info().n_embd);
  const float * output = shard_->boundary_out();
  for (TickLane & lane : lanes) {
    const size_t n = lane.run.rows * width;
    times.serialize_us = NowUs() - times.start_us - times.compute_us;
    lane.status = Guarded(Code::kInternal, [&] { return lane.lane->Forward(lane.run, {output, n}, times); });
    output += n;
  }
}

void TickRunner::DrawHere(std::span<TickLane> lanes, std::span<const size_t> last_rows, TickTimes times,
                          std::vector<Drawn> * drawn) {
  // Draw first: how many lanes drew is part of every loop frame.
  uint32_t n_drawn = 0;
  for (size_t i = 0; i < lanes.size(); i++) {
    TickLane & lane = lanes[i];
    if (!lane.run.wants_logits) continue;
    lane.status = lane.sampler->Draw(LogitsOf(last_rows[i]), lane.lane->kv_pos(), &(*drawn)[i]);
    if (lane.status.ok()) n_drawn++;
  }
  for (size_t i = 0; i < lanes.size(); i++) {
    TickLane & lane = lanes[i];
    if (!lane.run.wants_logits || !lane.status.ok()) continue;
    const Drawn & token = (*drawn)[i];
    lane.status = Guarded(Code::kInternal, [&] { return lane.lane->Emit(lane.run, token, times, n_drawn, NowUs()); });
  }
}

void TickRunner::DrawInPool(std::span<TickLane> lanes, std::span<const size_t> last_rows, const TickTimes & times) {
  std::vector<Draw> draws;
  for (size_t i = 0; i < lanes.size(); i++) {
    TickLane & lane = lanes[i];
    if (!lane.run.wants_logits) continue;
    Draw draw{.id = ++n_draws_,
              .lane = lane.lane->spec().params.key,
              .sampler = lane.sampler,
              .logits = {},
              .pos = lane.lane->kv_pos(),
              .emission = {}};
    lane.status = Guarded(Code::kInternal, [&] {
      const auto logits = LogitsOf(last_rows[i]);
      draw.logits.assign(logits.begin(), logits.end());
      return lane.lane->Announce(lane.run, times, &draw.emission);
    });
    if (!lane.status.ok()) continue;
    lane.draw = draw.id;
    draws.push_back(std::move(draw));
  }
  pool_->Submit(std::move(draws));
}

void TickRunner::Trace(std::span<const TickLane> lanes, std::span<const Drawn> drawn) {
  TickTrace trace;
  trace.tick = n_ticks_;
  size_t row = 0;
  for (size_t i = 0; i < lanes.size(); i++) {
    const Lane & lane = *lanes[i].lane;
    for (const size_t end = row + lanes[i].run.rows; row < end; row++) {
      TraceRow traced{lane.spec().params.key, rows_[row].seq, rows_[row].pos, {}, -1, lane.turn().number()};
      if (rows_[row].want_logits) {
        traced.logits_sha256 = Sha256(LogitsOf(row));
        traced.sampled = drawn[i].token;
      }
      trace.rows.push_back(std::move(traced));
    }
  }
  trace.operations = sequences_->TakeOperations();
  on_tick_(trace);
}

std::span<const float> TickRunner::LogitsOf(size_t row) const {
  return {shard_->logits(row), static_cast<size_t>(shard_->info().n_vocab)};
}

}  // namespace meshnet
