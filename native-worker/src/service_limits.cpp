#include "service_limits.h"

#include <grpc/impl/codegen/grpc_types.h>

#include "bounds.h"

namespace meshnet {
namespace {

// Twice a packet, so that one that is a little too long is answered with a typed error.
constexpr int kMaxMessageBytes = static_cast<int>(2 * kMaxPacketBytes);
constexpr int kMaxMetadataBytes = 16 * 1024;
constexpr int kBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;
constexpr int kConnectMs = 10'000;  // of one attempt: TCP and TLS over a slow link to a busy peer
constexpr int kMaxThreads = 64;  // of the control socket: calls that may wait

template <typename Set>
void SetCommon(Set set) {
  set(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(kKeepaliveMs));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kKeepaliveTimeoutMs));
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  set(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes);
}

}  // namespace

void LimitServer(grpc::ServerBuilder * builder) {
  SetCommon([&](const char * name, int value) { builder->AddChannelArgument(name, value); });
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, static_cast<int>(kMinPingMs));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, static_cast<int>(kHandshakeMs));
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  grpc::ResourceQuota quota("meshnet");
  quota.SetMaxThreads(kMaxThreads);
  builder->SetResourceQuota(quota);
}

grpc::ChannelArguments ChannelLimits() {
  grpc::ChannelArguments arguments;
  SetCommon([&](const char * name, int value) { arguments.SetInt(name, value); });
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Equal addresses of different peers must never share a connection, and no proxy may stand between pinned ends.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kBackoffMs);
  // Whatever its name says: the least time that an attempt gets before it is given up.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  return arguments;
}

grpc::ChannelArguments SeamChannelLimits() {
  grpc::ChannelArguments arguments = ChannelLimits();
  arguments.SetSslTargetNameOverride("seam.meshnet");
  return arguments;
}

}  // namespace meshnet
