// Bridge: what two nodes do between two workers that have no direct connection: carries packets as opaque bytes.
// Threads: the test's thread; packets travel on gRPC's.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "seam_client.h"
#include "stream.h"

namespace meshnet {

class Bridge : public grpc::CallbackGenericService {
 public:
  // Listens on the Unix socket; every stream with that bridge id goes on to `far` with `far_metadata`.
  Bridge(const std::string & socket_path, std::string bridge_id, std::shared_ptr<grpc::Channel> far,
         SeamClient::Metadata far_metadata);
  ~Bridge() override;

  grpc::ServerGenericBidiReactor * CreateReactor(grpc::GenericCallbackServerContext * context) override;

 private:
  const std::string bridge_id_;
  const std::shared_ptr<grpc::Channel> far_;
  const SeamClient::Metadata far_metadata_;
  const std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace meshnet
