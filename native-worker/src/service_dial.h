// Dialler: opens seams to other workers, directly or through the node's bridge. The only place that makes connections.
// Threads: every method from any thread; Dial waits.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "certificate.h"
#include "seam.h"
#include "status.h"
#include "stream.h"
#include "worker.pb.h"

namespace meshnet {

class Dialler {
 public:
  Dialler(Certificate own, std::shared_ptr<Traffic> traffic, bool direct_allowed)
      : own_(std::move(own)), traffic_(std::move(traffic)), direct_allowed_(direct_allowed) {}

  // Connects, opens the seam and waits for its Opened, within request.timeout_ms. Any code of the other end's Error;
  // kSeamUnreachable, kSeamTimeout, kDigestMismatch, kMalformed, kAttemptStale.
  Status Dial(const std::shared_ptr<Seam> & seam, const meshnet::worker::v1::LinkRequest & request,
              meshnet::worker::v1::LinkReply * reply);

 private:
  using ChannelKey = std::pair<std::string, std::string>;  // target, certificate hash or bridge id

  // The known channel of that key, or a new one. Channels that nobody uses any more are dropped here, on a thread that
  // is not gRPC's.
  std::shared_ptr<grpc::Channel> ChannelFor(const ChannelKey & key,
                                            const std::function<std::shared_ptr<grpc::Channel>()> & make);

  const Certificate own_;
  const std::shared_ptr<Traffic> traffic_;
  const bool direct_allowed_;
  std::mutex mu_;
  // One connection for all seams to the same peer.
  std::map<ChannelKey, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace meshnet
