// Status report: how a Status leaves the process: as an Error frame, as a gRPC refusal, as a line on stderr.
// Threads: pure functions, except PrintStatus, which writes one line at once.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>

#include "seam.pb.h"
#include "status.h"

namespace meshnet {

// "NO_CAPACITY"; "INTERNAL" for a number that is no code.
std::string CodeName(Code code);
// A code that this version does not know is kInternal.
Code CodeFrom(meshnet::seam::v1::ErrorCode code);

// At most `limit` bytes of valid UTF-8: protobuf lets nothing else into a string field.
std::string SafeText(const std::string & text, size_t limit);

// Message cut to its limit on a character boundary, retry hint by code.
meshnet::seam::v1::Error ToError(const Status & status, uint32_t fault_stage);
Status FromError(const meshnet::seam::v1::Error & error);

// FAILED_PRECONDITION, with the Error in the trailing metadata "meshnet-error-bin". OK stays OK.
grpc::Status ToGrpc(const Status & status, grpc::ServerContextBase * context);

// {"error":{"code":"MODEL_CORRUPT","message":"..."}} and a newline on stderr.
void PrintStatus(const Status & status);

}  // namespace meshnet
