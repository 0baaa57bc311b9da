#include "lane_input.h"

#include <algorithm>

namespace meshnet {

void LaneInput::Push(const Frame & frame, std::vector<float> rows, uint64_t payload_bytes, uint64_t now_us) {
  Piece piece{.phase = frame.phase(),
              .pos = frame.pos(),
              .rows = frame.n_tokens(),
              .data = std::move(rows),
              .payload = payload_bytes,
              // A decode step is a unit of its own even when its sender forgot to say so.
              .chunk_end = frame.chunk_end() || frame.phase() == seam::v1::PHASE_DECODE,
              .group = {frame.group(), frame.group_size()},
              .times = frame.times(),
              .since_us = now_us};
  rows_ += piece.rows;
  pieces_.push_back(std::move(piece));
}

std::optional<LaneInput::Unit> LaneInput::Front(uint32_t max_rows) const {
  if (pieces_.empty()) return std::nullopt;
  const Piece & first = pieces_.front();
  Unit unit{.phase = first.phase, .pos = first.pos + first.done, .group = first.group, .since_us = first.since_us};
  for (const Piece & piece : pieces_) {
    const uint32_t left = piece.rows - piece.done;
    const uint32_t taken = std::min(left, max_rows - unit.rows);
    unit.rows += taken;
    unit.ready_us = piece.since_us;
    if (taken == left && piece.chunk_end) {
      unit.complete = unit.ends_chunk = true;
      break;
    }
    if (unit.rows == max_rows) {
      unit.complete = true;
      break;
    }
  }
  return unit;
}

void LaneInput::Copy(uint32_t rows, std::vector<float> * out) const {
  for (const Piece & piece : pieces_) {
    if (rows == 0) return;
    const uint32_t taken = std::min(rows, piece.rows - piece.done);
    const auto from = piece.data.begin() + static_cast<ptrdiff_t>(size_t{piece.done} * width_);
    out->insert(out->end(), from, from + static_cast<ptrdiff_t>(size_t{taken} * width_));
    rows -= taken;
  }
}

const google::protobuf::RepeatedPtrField<seam::v1::StageTimes> & LaneInput::TimesAt(uint32_t rows) const {
  auto it = pieces_.begin();
  while (rows > it->rows - it->done) {
    rows -= it->rows - it->done;
    ++it;
  }
  return it->times;
}

uint64_t LaneInput::Pop(uint32_t rows) {
  uint64_t payload = 0;
  rows_ -= rows;
  while (rows > 0) {
    Piece & piece = pieces_.front();
    const uint32_t taken = std::min(rows, piece.rows - piece.done);
    piece.done += taken;
    rows -= taken;
    if (piece.done == piece.rows) {
      payload += piece.payload;
      pieces_.pop_front();
    }
  }
  return payload;
}

uint64_t LaneInput::Clear(const std::function<void(const GroupKey &)> & dropped) {
  uint64_t payload = 0;
  for (const Piece & piece : pieces_) {
    payload += piece.payload;
    if (piece.chunk_end) dropped(piece.group);
  }
  pieces_.clear();
  rows_ = 0;
  return payload;
}

}  // namespace meshnet
