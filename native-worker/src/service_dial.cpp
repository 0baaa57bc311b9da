#include "service_dial.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <vector>

#include "bounds.h"
#include "frame.h"
#include "service_limits.h"
#include "status_report.h"
#include "tls.h"

namespace meshnet {
namespace {

using Clock = std::chrono::system_clock;  // gRPC's deadlines
namespace wk = meshnet::worker::v1;

// An endpoint is a host and a port and nothing else: gRPC would also take names of sockets and resolvers.
bool IsEndpoint(const std::string & endpoint) {
  const auto allowed = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
           c == ':' || c == '[' || c == ']' || c == '_';
  };
  return !endpoint.empty() && endpoint.size() <= kMaxEndpointBytes &&
         std::all_of(endpoint.begin(), endpoint.end(), allowed);
}

Status CheckTarget(const wk::LinkRequest & request, bool direct_allowed) {
  if (request.has_direct() == request.has_bridge()) return {Code::kMalformed, "exactly one way to dial"};
  if (request.ticket().size() != kTicketBytes) return {Code::kMalformed, "a ticket has 32 bytes"};
  if (request.has_bridge()) {
    const auto & bridge = request.bridge();
    return bridge.socket_path().empty() || bridge.bridge_id().size() > kMaxBridgeIdBytes
               ? Status(Code::kMalformed, "the bridge has no socket")
               : Status();
  }
  if (!direct_allowed) return {Code::kSeamUnreachable, "this worker makes no direct connections"};
  const auto & direct = request.direct();
  if (direct.endpoints_size() == 0 || direct.endpoints_size() > static_cast<int>(kMaxEndpoints)) {
    return {Code::kLimitExceeded, "1 to 4 endpoints"};
  }
  for (const auto & endpoint : direct.endpoints()) {
    if (!IsEndpoint(endpoint)) return {Code::kMalformed, "an endpoint is not host:port"};
  }
  if (direct.certificate().size() > kMaxCertificateBytes ||
      Sha256(direct.certificate()) != request.peer_certificate_sha256()) {
    return {Code::kDigestMismatch, "the certificate does not have the advertised hash"};
  }
  return {};
}

// Hears a dialled stream until its Opened.
class Answer final : public StreamEvents {
 public:
  Answer(std::shared_ptr<Seam> seam, uint32_t attempt) : seam_(std::move(seam)), attempt_(attempt) {}

  std::future<Status> result() { return result_.get_future(); }

  void Asked(const std::shared_ptr<Stream> & stream) {
    std::lock_guard lock(mu_);
    stream_ = stream;
    asked_at_ = std::chrono::steady_clock::now();
  }
  uint32_t rtt_us() const {
    std::lock_guard lock(mu_);
    return rtt_us_;
  }

  void OnPacket(std::string_view bytes) override {
    std::shared_ptr<Stream> stream;
    {
      std::lock_guard lock(mu_);
      stream = stream_.lock();
      const auto rtt = std::chrono::steady_clock::now() - asked_at_;
      rtt_us_ = static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(rtt).count());
    }
    std::vector<ParsedFrame> frames;
    Status s = ParsePacket(bytes, &frames);
    if (s.ok() && frames[0].frame.has_error()) s = FromError(frames[0].frame.error());
    if (s.ok() && (frames.size() != 1 || !frames[0].frame.has_opened() || !stream)) {
      s = Status(Code::kMalformed, "the answer to Open is one Opened");
    }
    if (s.ok()) s = seam_->Connected(stream, attempt_, frames[0].frame.opened());
    Tell(s);
  }

  void OnEnd(const grpc::Status & status, bool) override {
    Tell({Code::kSeamUnreachable, "the other end refused the stream: " + status.error_message()});
  }

 private:
  void Tell(const Status & status) {
    {
      std::lock_guard lock(mu_);
      if (std::exchange(told_, true)) return;
    }
    result_.set_value(status);
  }

  const std::shared_ptr<Seam> seam_;
  const uint32_t attempt_;
  mutable std::mutex mu_;
  std::weak_ptr<Stream> stream_;
  std::chrono::steady_clock::time_point asked_at_{};
  uint32_t rtt_us_ = 0;
  bool told_ = false;
  std::promise<Status> result_;
};

}  // namespace

std::shared_ptr<grpc::Channel> Dialler::ChannelFor(const ChannelKey & key,
                                                   const std::function<std::shared_ptr<grpc::Channel>()> & make) {
  std::lock_guard lock(mu_);
  std::erase_if(channels_, [&](const auto & entry) { return entry.first != key && entry.second.use_count() == 1; });
  auto & channel = channels_[key];
  if (!channel) channel = make();
  return channel;
}

Status Dialler::Dial(const std::shared_ptr<Seam> & seam, const wk::LinkRequest & request, wk::LinkReply * reply) {
  if (Status s = CheckTarget(request, direct_allowed_); !s.ok()) return s;
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(std::clamp<uint32_t>(request.timeout_ms(), 1, kMaxLinkMs));

  std::vector<std::pair<std::string, std::string>> metadata{{"meshnet-ticket-bin", request.ticket()}};
  std::shared_ptr<grpc::Channel> channel;
  if (request.has_bridge()) {
    metadata.emplace_back("meshnet-bridge-bin", request.bridge().bridge_id());
    const std::string target = "unix:" + request.bridge().socket_path();
    channel = ChannelFor({target, request.bridge().bridge_id()}, [&] {
      return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), ChannelLimits());
    });
    if (!channel->WaitForConnected(deadline)) return {Code::kSeamUnreachable, "the node's bridge does not answer"};
    reply->set_endpoint(request.bridge().socket_path());
  } else {
    const auto & endpoints = request.direct().endpoints();
    for (int i = 0; i < endpoints.size() && !channel; ++i) {
      // What is left is shared by what is left to try.
      const std::string target = "dns:///" + endpoints[i], &sha256 = request.peer_certificate_sha256();
      auto candidate = ChannelFor({target, sha256}, [&] {
        return grpc::CreateCustomChannel(target, SeamChannelCredentials(own_, sha256), SeamChannelLimits());
      });
      if (!candidate->WaitForConnected(Clock::now() + (deadline - Clock::now()) / (endpoints.size() - i))) continue;
      channel = std::move(candidate);
      reply->set_endpoint(endpoints[i]);
    }
    if (!channel) return {Code::kSeamUnreachable, "no endpoint of the other end could be reached as the one expected"};
  }

  std::string first;
  if (Status s = seam->BeginAttempt(request.attempt(), &first); !s.ok()) return s;
  const auto answer = std::make_shared<Answer>(seam, request.attempt());
  auto result = answer->result();
  const auto stream = DialStream(channel, metadata, traffic_, answer);
  answer->Asked(stream);
  stream->Send(ToBuffer(std::move(first)));
  Status status{Code::kSeamTimeout, "no Opened came"};
  if (result.wait_until(deadline) == std::future_status::ready) status = result.get();
  if (!status.ok()) {
    stream->Abort();
    seam->DialFailed(request.attempt(), status);
    return status;
  }
  reply->set_rtt_us(answer->rtt_us());
  return {};
}

}  // namespace meshnet
