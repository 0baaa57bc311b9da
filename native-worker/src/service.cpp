#include "service.h"

#include <grpcpp/security/auth_context.h>

#include <mutex>
#include <utility>
#include <vector>

#include "boot_token.h"
#include "bounds.h"
#include "certificate.h"
#include "frame.h"
#include "status_report.h"

namespace meshnet {
namespace {

constexpr char kPemProperty[] = "x509_pem_cert";

// Hears a stream until its Open, then steps aside. Ends once: opened, refused or timed out.
class Handshake final : public StreamEvents, public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(const SeamServiceParts * parts, std::string ticket, PeerIdentity peer, std::weak_ptr<Stream> stream)
      : parts_(parts), ticket_(std::move(ticket)), peer_(std::move(peer)), stream_(std::move(stream)) {}

  void StartClock() {
    parts_->timer->After(parts_->handshake_ms, [self = shared_from_this()] {
      if (self->End()) self->Refuse({Code::kSeamTimeout, "no Open came"}, {});
    });
  }

  void OnPacket(std::string_view bytes) override {
    if (!End()) return;
    std::vector<ParsedFrame> frames;
    Status s = ParsePacket(bytes, &frames);
    if (s.ok() && (frames.size() != 1 || !frames[0].frame.has_open())) {
      s = Status(Code::kMalformed, "a stream begins with one Open");
    }
    if (!s.ok()) return Refuse(s, {});
    const auto & lane = frames[0].frame.lane();
    const auto & open = frames[0].frame.open();
    std::shared_ptr<Seam> seam;
    s = parts_->tickets->Open({lane.session(), lane.epoch(), lane.stage()}, EndFor(open.role()), ticket_, peer_, &seam);
    const auto stream = stream_.lock();
    if (s.ok() && stream) s = seam->Accept(stream, open);
    if (!s.ok()) Refuse(s, lane);
  }

  void OnEnd(const grpc::Status &, bool) override {
    End();
    if (const auto stream = stream_.lock()) stream->Finish();
  }

 private:
  bool End() {
    std::lock_guard lock(mu_);
    return !std::exchange(ended_, true);
  }

  void Refuse(const Status & why, const meshnet::seam::v1::Lane & lane) {
    parts_->refused(why.code());
    const auto stream = stream_.lock();
    if (!stream) return;
    Frame frame;
    *frame.mutable_lane() = lane;
    *frame.mutable_error() = ToError(why, lane.stage());
    size_t offset = 0;
    stream->Send(ToBuffer(EncodePacket(frame, &offset)));
    stream->Finish();
    parts_->timer->After(kLingerMs, [stream] { stream->Abort(); });
  }

  const SeamServiceParts * const parts_;
  const std::string ticket_;
  const PeerIdentity peer_;
  const std::weak_ptr<Stream> stream_;
  std::mutex mu_;
  bool ended_ = false;
};

std::string Metadata(const grpc::GenericCallbackServerContext & context, const char * key) {
  const auto & metadata = context.client_metadata();
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : std::string(found->second.data(), found->second.size());
}

}  // namespace

grpc::Status SeamService::Identify(const grpc::GenericCallbackServerContext & context, PeerIdentity * peer) const {
  if (context.method() != kStreamMethod) return {grpc::StatusCode::UNIMPLEMENTED, "no such method"};
  if (!bridge_token_.empty()) {
    if (!HasBootToken(context, bridge_token_)) return BootTokenRefused();
    peer->peer_id = Metadata(context, "meshnet-peer");
    if (peer->peer_id.empty() || peer->peer_id.size() > kMaxPeerIdBytes) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "meshnet-peer names no peer"};
    }
    return grpc::Status::OK;
  }
  const auto pems = context.auth_context()->FindPropertyValues(kPemProperty);
  if (pems.size() == 1) peer->certificate_sha256 = PemCertificateSha256({pems[0].data(), pems[0].size()});
  if (peer->certificate_sha256.empty()) return {grpc::StatusCode::UNAUTHENTICATED, "no certificate"};
  return grpc::Status::OK;
}

grpc::ServerGenericBidiReactor * SeamService::CreateReactor(grpc::GenericCallbackServerContext * context) {
  const auto connect = [&](const std::shared_ptr<Stream> & stream,
                           grpc::Status * refusal) -> std::shared_ptr<StreamEvents> {
    PeerIdentity peer;
    *refusal = Identify(*context, &peer);
    if (!refusal->ok()) return nullptr;
    auto handshake =
        std::make_shared<Handshake>(&parts_, Metadata(*context, "meshnet-ticket-bin"), std::move(peer), stream);
    handshake->StartClock();
    return handshake;
  };
  return AcceptStream(context, parts_.traffic, connect);
}

}  // namespace meshnet
