// LaneInput: the activation rows that a later stage has received and not run yet.
// Threads: the engine thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "port.h"
#include "scheduler.h"

namespace meshnet {

class LaneInput {
 public:
  // Rows that can run as one unit now or later.
  struct Unit {
    seam::v1::Phase phase = seam::v1::PHASE_UNSPECIFIED;
    uint32_t pos = 0;
    uint32_t rows = 0;
    bool complete = false;    // its last frame is here, or it fills a decode
    bool ends_chunk = false;  // the sender's unit ends with it
    GroupKey group{};
    uint64_t since_us = 0;  // arrival of its first frame
    uint64_t ready_us = 0;  // arrival of the frame that completed it
  };

  explicit LaneInput(uint32_t width) : width_(width) {}

  // Takes the rows of a checked frame. `rows` is [n_tokens, width].
  void Push(const Frame & frame, std::vector<float> rows, uint64_t payload_bytes, uint64_t now_us);
  // The unit at the front, at most max_rows long. nullopt: nothing is queued.
  std::optional<Unit> Front(uint32_t max_rows) const;
  // Appends the first `rows` rows to `out`; they stay queued until Pop. REQUIRES that many in the front unit.
  void Copy(uint32_t rows, std::vector<float> * out) const;
  // The times of the frame that holds row `rows - 1`.
  const google::protobuf::RepeatedPtrField<seam::v1::StageTimes> & TimesAt(uint32_t rows) const;
  // Forgets the first `rows` rows; gives the payload bytes of the frames that this finished.
  uint64_t Pop(uint32_t rows);
  // Forgets everything; gives payload bytes and calls `dropped` for each unit with its group.
  uint64_t Clear(const std::function<void(const GroupKey &)> & dropped);

  uint32_t rows() const { return rows_; }

 private:
  struct Piece {
    seam::v1::Phase phase;
    uint32_t pos;
    uint32_t rows;
    uint32_t done = 0;
    std::vector<float> data;
    uint64_t payload;
    bool chunk_end;
    GroupKey group;
    google::protobuf::RepeatedPtrField<seam::v1::StageTimes> times;
    uint64_t since_us;
  };

  uint32_t width_;
  uint32_t rows_ = 0;
  std::deque<Piece> pieces_;
};

}  // namespace meshnet
