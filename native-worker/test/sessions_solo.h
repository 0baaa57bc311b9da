// Every session again, alone on the whole model, against what it got among the others.
// Threads: one.
#pragma once

#include "findings.h"
#include "sessions_replay.h"

namespace meshnet {

// Of a row: the norm of its difference over the norm of its centred logits. Alone and in company llama.cpp's attention
// adds up in another order, and it rounds keys, values and, in small batches, sums to f16 whatever the cache holds.
// A foreign token in the cache moves a row by a tenth and more.
inline constexpr double kSoloTolerance = 2e-2;

struct SoloResult {
  size_t n_rows = 0;
  double max_difference = 0;  // of a row, as above
};

// `draws`: of the replay, which has the bits of the ring.
SoloResult CheckSolo(const RingOptions & options, const std::vector<PlayedSession> & sessions, const Draws & draws,
                     Findings * findings);

}  // namespace meshnet
