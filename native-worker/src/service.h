// SeamService: hears the streams that others open, checks ticket and peer, and hands each to its seam.
// Threads: gRPC calls it from its own threads.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <memory>
#include <string>

#include "bounds.h"
#include "status.h"
#include "stream.h"
#include "tickets.h"
#include "timer.h"

namespace meshnet {

struct SeamServiceParts {
  Tickets * tickets = nullptr;  // these outlive the server
  Timer * timer = nullptr;
  std::shared_ptr<Traffic> traffic;
  std::function<void(Code)> refused;
  uint32_t handshake_ms = kHandshakeMs;
};

// Bytes are parsed here and not by gRPC: a typed server would answer a message that it cannot parse with status OK.
class SeamService final : public grpc::CallbackGenericService {
 public:
  // With a token: bridged streams from the node, which names the peer. Without: the peer is its TLS certificate.
  SeamService(SeamServiceParts parts, std::string bridge_token)
      : parts_(std::move(parts)), bridge_token_(std::move(bridge_token)) {}

  grpc::ServerGenericBidiReactor * CreateReactor(grpc::GenericCallbackServerContext * context) override;

 private:
  grpc::Status Identify(const grpc::GenericCallbackServerContext & context, PeerIdentity * peer) const;

  const SeamServiceParts parts_;
  const std::string bridge_token_;
};

}  // namespace meshnet
