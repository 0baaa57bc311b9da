// Inbox: what other threads ask of the engine thread, in order.
// Threads: the caller's mutex guards it.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "engine.h"

namespace meshnet {

struct OpenLane {
  LaneParams params;
  int32_t seq = 0;
};
struct AttachPort {
  Port port = Port::kUp;
  std::shared_ptr<FrameSink> sink;
};
struct DeliverFrame {
  Port from = Port::kUp;
  Frame frame;
};
struct ClosePort {
  Port from = Port::kUp;
};
struct FailPort {
  Port from = Port::kUp;
  Status why;
};
struct ExtendLane {
  uint32_t positions = 0;
};
struct ReleaseLane {
  Status why;
};
struct RunProbe {
  struct Answer {
    Status status;
    Engine::ProbeResult result;
  };
  uint32_t n_tokens = 0;
  int32_t seq = 0;
  std::promise<Answer> answer;
};

// For one life of a lane; what comes after its end is void.
struct Command {
  LaneKey key;
  uint64_t instance = 0;
  std::variant<OpenLane, AttachPort, DeliverFrame, ClosePort, FailPort, ExtendLane, ReleaseLane, RunProbe> what;
};

}  // namespace meshnet
