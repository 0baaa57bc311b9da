// Listening: what the tests of a seam that is dialled begin with, a tail that listens and its peer as a client.
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "seam_end.h"

namespace meshnet {

class Listening : public testing::Test {
 protected:
  using Kind = NotedLane::Note::Kind;

  Listening();

  // A stream that has said nothing yet.
  std::unique_ptr<SeamClient> Connect(const std::string & ticket) const;
  // Opened, with the answer checked.
  std::unique_ptr<SeamClient> Open(uint32_t attempt = 1, uint64_t next_seq = 1);
  // The answer to a changed Open.
  Code OpenCode(const std::function<void(Frame &)> & change) const;
  // What an open stream's peer is told of a frame, and that the lane is told the same.
  Code FrameCode(const std::function<void(SeamClient &)> & send);

  Certificate peer_;
  SeamEnd tail_;
  std::shared_ptr<Seam> seam_;
  seam::v1::Opened opened_;
};

}  // namespace meshnet
