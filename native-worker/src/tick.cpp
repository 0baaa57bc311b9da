#include "tick.h"

#include <chrono>
#include <stdexcept>

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
  const uint64_t computed_us = times.start_us + times.compute_us;
  const ShardInfo & info = shard_->info();
  const auto n_vocab = static_cast<size_t>(info.n_vocab);
  TickTrace trace;
  trace.tick = ++n_ticks_;
  uint32_t decoded = 0;
  uint32_t prefilled = 0;

  // Draw first: how many lanes drew is part of every loop frame.
  std::vector<Drawn> drawn(lanes.size());
  uint32_t n_drawn = 0;
  size_t row = 0;
  for (size_t i = 0; i < lanes.size(); i++) {
    TickLane & lane = lanes[i];
    lane.lane->Advance(lane.run, computed_us);
    (lane.run.phase == seam::v1::PHASE_DECODE ? decoded : prefilled) += lane.run.rows;
    const size_t last = row + lane.run.rows - 1;
    if (lane.run.wants_logits) {
      lane.status = lane.sampler->Draw({shard_->logits(last), n_vocab}, lane.lane->kv_pos(), &drawn[i]);
      if (lane.status.ok()) n_drawn++;
    }
    if (on_tick_) {
      for (; row <= last; row++) {
        const Lane & of = *lane.lane;
        TraceRow traced{of.spec().params.key, rows_[row].seq, rows_[row].pos, {}, -1, of.turn().number()};
        if (rows_[row].want_logits) {
          traced.logits_sha256 = Sha256({shard_->logits(row), n_vocab});
          traced.sampled = drawn[i].token;
        }
        trace.rows.push_back(std::move(traced));
      }
    }
    row = last + 1;
  }

  const auto width = static_cast<size_t>(info.n_embd);
  const float * output = shard_->boundary_out();
  for (size_t i = 0; i < lanes.size(); i++) {
    TickLane & lane = lanes[i];
    const size_t n = lane.run.rows * width;
    const uint64_t now = NowUs();
    times.serialize_us = now - computed_us;
    if (!lane.lane->spec().tail) {
      lane.status = Guarded(Code::kInternal, [&] { return lane.lane->Forward(lane.run, {output, n}, times); });
      output += n;
    } else if (lane.status.ok() && lane.run.wants_logits) {
      lane.status = Guarded(Code::kInternal, [&] { return lane.lane->Emit(lane.run, drawn[i], times, n_drawn, now); });
    }
  }
  meter_->Tick(decoded, prefilled, times.compute_us);
  if (on_tick_) {
    trace.operations = sequences_->TakeOperations();
    on_tick_(trace);
  }
}

}  // namespace meshnet
