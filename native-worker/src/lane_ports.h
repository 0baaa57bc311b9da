// LanePorts: the sinks of one lane.
// Threads: the engine thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "port.h"
#include "status.h"

namespace meshnet {

class LanePorts {
 public:
  void Attach(Port port, std::shared_ptr<FrameSink> sink) { sinks_[Index(port)] = std::move(sink); }
  FrameSink * at(Port port) const { return sinks_[Index(port)].get(); }
  const std::shared_ptr<FrameSink> & shared(Port port) const { return sinks_[Index(port)]; }

  // kSeamUnreachable when nothing is attached there.
  Status Send(Port port, Frame frame) const;
  // To every sink once, except the one at `except`.
  void SendAll(const Frame & frame, std::optional<Port> except) const;
  void CloseAll() const;

 private:
  static size_t Index(Port port) { return static_cast<size_t>(port); }
  // Calls `use` for each sink once: with two stages one sink may stand at two ports.
  template <typename Use>
  void ForEach(std::optional<Port> except, Use use) const;

  std::array<std::shared_ptr<FrameSink>, 3> sinks_;
};

// The frame that tells other stages how a lane died.
Frame ErrorFrame(const Status & status, uint32_t fault_stage);
// The status that an Error frame carries; a code that this build does not know becomes kInternal.
Status StatusOf(const seam::v1::Error & error);

}  // namespace meshnet
