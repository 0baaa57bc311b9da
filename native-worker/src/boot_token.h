// The per-boot token that a node shows to its own processes.
// Threads: any; no shared state.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "status.h"

namespace meshnet {

// From a file of kTokenBytes bytes that only the node and this process can read. kMalformed.
Status ReadBootToken(const std::string & path, std::string * token);

// Whether the call carries `token` in "meshnet-token-bin". Takes the same time wherever they differ.
bool HasBootToken(const grpc::ServerContextBase & context, const std::string & token);

// The answer to a call without it.
grpc::Status BootTokenRefused();

}  // namespace meshnet
