#include "bridge.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>

namespace meshnet {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);

// Hears one stream and speaks on the other.
class Carrier final : public StreamEvents {
 public:
  void To(const std::shared_ptr<Stream> & stream) { to_ = stream; }
  void OnPacket(std::string_view bytes) override {
    if (const auto to = to_.lock()) to->Send(ToBuffer(std::string(bytes)));
  }
  void OnEnd(const grpc::Status & status, bool) override {
    if (const auto to = to_.lock()) status.ok() ? to->Finish() : to->Abort();
  }

 private:
  std::weak_ptr<Stream> to_;
};

}  // namespace

Bridge::Bridge(const std::string & socket_path, std::string bridge_id, std::shared_ptr<grpc::Channel> far,
               SeamClient::Metadata far_metadata)
    : bridge_id_(std::move(bridge_id)), far_(std::move(far)), far_metadata_(std::move(far_metadata)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
}

Bridge::~Bridge() {
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_TRUE(traffic_->WaitNoDialled(std::chrono::steady_clock::now() + kPatience));
}

grpc::ServerGenericBidiReactor * Bridge::CreateReactor(grpc::GenericCallbackServerContext * context) {
  return AcceptStream(
      context, traffic_,
      [&](const std::shared_ptr<Stream> & near, grpc::Status * refusal) -> std::shared_ptr<StreamEvents> {
        const auto id = context->client_metadata().find("meshnet-bridge-bin");
        if (id == context->client_metadata().end() || std::string(id->second.data(), id->second.size()) != bridge_id_) {
          *refusal = grpc::Status(grpc::StatusCode::NOT_FOUND, "nobody expects this bridge");
          return nullptr;
        }
        const auto out = std::make_shared<Carrier>(), back = std::make_shared<Carrier>();
        back->To(near);
        out->To(DialStream(far_, far_metadata_, traffic_, back));
        return out;
      });
}

}  // namespace meshnet
