// SeamClient: the far end of a seam stream, for tests: sends what it is told and keeps what comes.
// Threads: the test's thread; events come from gRPC's.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frame.h"
#include "seam_digest.h"
#include "stream.h"

namespace meshnet {

class SeamClient {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  SeamClient(std::shared_ptr<grpc::Channel> channel, const Metadata & metadata);
  ~SeamClient();

  // Every frame names this lane.
  void set_lane(const LaneKey & lane) { lane_ = lane; }
  void SendBytes(std::string packet);
  // As it is; seq 0 stays 0.
  void SendFrame(Frame frame);
  // With the next seq, counted for Close.
  void SendNext(Frame frame);
  void SendClose();
  // As if everything before `seq` had gone both ways already.
  void SkipTo(uint64_t seq) {
    next_seq_ = seq;
    n_received_ = seq - 1;
  }
  // An orderly half close.
  void EndWriting() { stream_->Finish(); }

  // The next packet's frame. Nothing when the stream has ended or the time has passed.
  std::optional<Frame> Next(std::chrono::seconds patience = std::chrono::seconds(10));
  // Frames until one of that kind; nothing when none comes.
  std::optional<Frame> NextOf(FrameKind kind);
  // The code of the next Error frame; kOk when the stream ends without one.
  Code NextError(std::chrono::seconds patience = std::chrono::seconds(10));
  // The status of the ended call; fails the test after ten seconds.
  grpc::Status WaitEnd();

  uint64_t n_sent() const { return next_seq_ - 1; }
  // Of sequenced frames that came.
  uint64_t n_received() const { return n_received_; }
  std::string received_digest() const { return received_.Value(); }

 private:
  struct Inbox;

  LaneKey lane_;
  uint64_t next_seq_ = 1;
  uint64_t n_received_ = 0;
  RollingDigest sent_, received_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Stream> stream_;
};

}  // namespace meshnet
