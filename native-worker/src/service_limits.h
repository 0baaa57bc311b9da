// The gRPC settings of every server and channel of the worker.
// Threads: pure functions.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace meshnet {

void LimitServer(grpc::ServerBuilder * builder);
grpc::ChannelArguments ChannelLimits();

}  // namespace meshnet
