// Emission: a sampled token's frame on its way out: made by the lane before the token is known, completed by whoever
// draws it, so that a thread which draws needs nothing of the lane.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "port.h"

namespace meshnet {

// What the tail's sampler drew.
struct Drawn {
  int32_t token = -1;
  bool end_of_generation = false;
  std::optional<seam::v1::TokenLogprobs> logprobs;
};

struct Emission {
  Frame frame;  // without the token and what comes of it
  std::shared_ptr<FrameSink> sink;
  bool grouped = false;      // the frame says how many lanes of its tick drew
  bool timed = false;        // the last stage times are this stage's own
  uint64_t computed_us = 0;  // when the tick was over
  bool ignore_end = false;
  // How the turn ends with this token, unless the token itself ends it.
  seam::v1::Finish limit = seam::v1::FINISH_UNSPECIFIED;
};

// The frame is whole afterwards. n_drawn: lanes of the tick that drew a token. Gives the turn's finish, if this is it.
seam::v1::Finish Complete(const Drawn & drawn, uint32_t n_drawn, uint64_t now_us, Emission * emission);

}  // namespace meshnet
