#include "control_server.h"

#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service_limits.h"
#include "tls.h"

namespace meshnet {

Status WorkerServers::ListenControl(const std::string & path) {
  grpc::ServerBuilder builder;
  LimitServer(&builder);
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(&control_);
  builder.RegisterCallbackGenericService(&bridged_);
  const mode_t old = umask(0177);
  control_server_ = builder.BuildAndStart();
  umask(old);
  if (!control_server_) return {Code::kResourceExhausted, path + ": no socket can be made there"};
  socket_path_ = path;
  return {};
}

Status WorkerServers::ListenSeams(const std::string & address, const Certificate & own, std::shared_ptr<PeerSet> peers,
                                  uint32_t * port) {
  grpc::ServerBuilder builder;
  LimitServer(&builder);
  int bound = 0;
  builder.AddListeningPort(address, SeamServerCredentials(own, std::move(peers)), &bound);
  builder.RegisterCallbackGenericService(&direct_);
  seam_server_ = builder.BuildAndStart();
  if (!seam_server_ || bound <= 0) return {Code::kResourceExhausted, address + ": cannot listen there"};
  *port = static_cast<uint32_t>(bound);
  return {};
}

void WorkerServers::Stop(std::chrono::milliseconds within) {
  const auto deadline = std::chrono::system_clock::now() + within;
  if (seam_server_) seam_server_->Shutdown(deadline);
  if (control_server_) control_server_->Shutdown(deadline);
  seam_server_.reset();
  control_server_.reset();
  if (!socket_path_.empty()) unlink(socket_path_.c_str());
}

}  // namespace meshnet
