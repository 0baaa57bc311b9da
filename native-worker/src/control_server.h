// WorkerServers: the worker's two listeners, the node's Unix socket and the seam port.
// Threads: one, at start and at stop.
#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "certificate.h"
#include "control.h"
#include "service.h"
#include "status.h"

namespace meshnet {

class WorkerServers {
 public:
  WorkerServers(WorkerState * state, SeamServiceParts parts, const std::string & token)
      : control_(state, token), bridged_(parts, token), direct_(std::move(parts), {}) {}

  // A socket file that only this user can open. kResourceExhausted: it cannot be made there.
  Status ListenControl(const std::string & path);
  // host:port, where port 0 means any free one. kResourceExhausted: taken, or no such address.
  Status ListenSeams(const std::string & address, const Certificate & own, std::shared_ptr<PeerSet> peers,
                     uint32_t * port);
  // Calls that have not ended by then are cut.
  void Stop(std::chrono::milliseconds within);

 private:
  ControlService control_;
  SeamService bridged_;
  SeamService direct_;
  std::string socket_path_;
  std::unique_ptr<grpc::Server> control_server_;
  std::unique_ptr<grpc::Server> seam_server_;
};

}  // namespace meshnet
