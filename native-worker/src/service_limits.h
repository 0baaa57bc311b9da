// The gRPC settings of every server and channel of the worker.
// Threads: pure functions.
#pragma once

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace meshnet {

void LimitServer(grpc::ServerBuilder * builder);
grpc::ChannelArguments ChannelLimits();
// Of a channel to a seam port: every worker's certificate has the same name.
grpc::ChannelArguments SeamChannelLimits();

}  // namespace meshnet
