// Port, FrameSink: how a lane's state machine and the streams that carry its frames meet.
// Threads: see each method.
#pragma once

#include <cstdint>
#include <string>

#include "seam.pb.h"
#include "status.h"

namespace meshnet {

using Frame = meshnet::seam::v1::Frame;

// (session, epoch, stage): the key of a lane.
struct LaneKey {
  std::string session;  // 16 bytes
  uint32_t epoch = 0;
  uint32_t stage = 0;
  auto operator<=>(const LaneKey &) const = default;
};

// The sides of a lane. kUp: the previous stage, or the gateway at the head. kDown: the next stage; a tail has none.
// kLoop: where sampled tokens go from a tail, and come from at a head. With two stages the reverse half of the one seam
// serves as the loop: the tail's kLoop is the sink of its kUp, and the head's loop frames arrive from kDown. With one
// stage there is no loop port.
enum class Port { kUp, kDown, kLoop };

// One direction of one live stream, as the engine sees it. Implemented by the seam.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Queues a frame. The sink fills in lane, seq and ack; everything else is the caller's. Never blocks, never fails: a
  // stream that cannot send reports through Engine::PortFailed. Engine thread, or for a tail's tokens the one that
  // drew them.
  virtual void Send(Frame frame) = 0;
  // Takes that much of the receiver's prefill credit, or takes none and returns false; Engine::Wake follows when more
  // has come. Engine thread.
  virtual bool ReserveCredit(uint64_t payload_bytes) = 0;
  // Positions of one compute unit that both ends accept (Limits.max_chunk_tokens). Engine thread.
  virtual uint32_t MaxChunkTokens() const { return UINT32_MAX; }
  // Prefill payload of this stream that the engine has read; the seam grants it to the sender again. Engine thread.
  virtual void Consumed(uint64_t payload_bytes) = 0;
  // After the frames already queued: an orderly Close. Engine thread.
  virtual void SendClose() = 0;
};

}  // namespace meshnet
