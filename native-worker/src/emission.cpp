#include "emission.h"

#include <algorithm>

namespace meshnet {

seam::v1::Finish Complete(const Drawn & drawn, uint32_t n_drawn, uint64_t now_us, Emission * emission) {
  Frame & frame = emission->frame;
  frame.add_tokens(drawn.token);
  if (drawn.logprobs) *frame.add_logprobs() = *drawn.logprobs;
  if (emission->timed) {
    const uint64_t us = now_us - std::min(now_us, emission->computed_us);
    frame.mutable_times(frame.times_size() - 1)->set_serialize_us(static_cast<uint32_t>(us));
  }
  // The lanes of one tick travel together, so the head can run them together again.
  if (emission->grouped) frame.set_group_size(n_drawn);
  const bool end = drawn.end_of_generation && !emission->ignore_end;
  const auto finish = end ? seam::v1::FINISH_END : emission->limit;
  if (finish != seam::v1::FINISH_UNSPECIFIED) frame.set_finish(finish);
  return finish;
}

}  // namespace meshnet
