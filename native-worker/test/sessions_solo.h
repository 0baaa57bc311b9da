// Every session again, alone on the whole model, against what it got among the others.
// Threads: one.
#pragma once

#include "findings.h"
#include "sessions_replay.h"

namespace meshnet {

// Largest difference of a logit, whose deviation over a row is near 3. In float32 the order of sums, which is all that
// company and chunks of prefill change, moves the fifth digit; one foreign token in the cache moves the first.
inline constexpr float kSoloTolerance = 2e-3f;

struct SoloResult {
  size_t n_rows = 0;
  float max_difference = 0;
};

// `draws`: of the replay, which has the bits of the ring.
SoloResult CheckSolo(const RingOptions & options, const std::vector<PlayedSession> & sessions, const Draws & draws,
                     Findings * findings);

}  // namespace meshnet
