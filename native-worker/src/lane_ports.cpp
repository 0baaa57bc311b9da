#include "lane_ports.h"

#include "bounds.h"

namespace meshnet {

template <typename Use>
void LanePorts::ForEach(std::optional<Port> except, Use use) const {
  const FrameSink * skipped = except ? at(*except) : nullptr;
  for (size_t i = 0; i < sinks_.size(); i++) {
    FrameSink * sink = sinks_[i].get();
    bool seen = sink == nullptr || sink == skipped;
    for (size_t j = 0; j < i; j++) seen = seen || sinks_[j].get() == sink;
    if (!seen) use(*sink);
  }
}

Status LanePorts::Send(Port port, Frame frame) const {
  FrameSink * sink = at(port);
  if (sink == nullptr) return {Code::kSeamUnreachable, "the lane has no open stream on that side"};
  sink->Send(std::move(frame));
  return {};
}

void LanePorts::SendAll(const Frame & frame, std::optional<Port> except) const {
  ForEach(except, [&](FrameSink & sink) { sink.Send(frame); });
}

void LanePorts::CloseAll() const {
  ForEach(std::nullopt, [](FrameSink & sink) { sink.SendClose(); });
}

Frame ErrorFrame(const Status & status, uint32_t fault_stage) {
  Frame frame;
  auto * error = frame.mutable_error();
  error->set_code(static_cast<seam::v1::ErrorCode>(status.code()));
  error->set_message(status.message().substr(0, kMaxErrorMessageBytes));
  error->set_fault_stage(fault_stage);
  return frame;
}

Status StatusOf(const seam::v1::Error & error) {
  const bool known = seam::v1::ErrorCode_IsValid(error.code()) && error.code() != seam::v1::ERROR_CODE_UNSPECIFIED;
  return {known ? static_cast<Code>(error.code()) : Code::kInternal, error.message()};
}

}  // namespace meshnet
