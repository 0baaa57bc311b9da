#include "tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <utility>
#include <vector>

namespace meshnet {
namespace {

namespace ex = grpc::experimental;

// Called by gRPC after the cryptographic handshake, so the peer has proved that it holds the key.
class HashVerifier : public ex::ExternalCertificateVerifier {
 public:
  explicit HashVerifier(std::function<bool(const std::string &)> allowed) : allowed_(std::move(allowed)) {}
  ~HashVerifier() override = default;

  bool Verify(ex::TlsCustomVerificationCheckRequest * request, std::function<void(grpc::Status)>,
              grpc::Status * sync_status) override {
    const auto pem = request->peer_cert();
    const std::string sha256 = PemCertificateSha256(std::string_view(pem.data(), pem.size()));
    *sync_status = !sha256.empty() && allowed_(sha256)
                       ? grpc::Status::OK
                       : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the certificate is not expected");
    return true;
  }
  void Cancel(ex::TlsCustomVerificationCheckRequest *) override {}

 private:
  std::function<bool(const std::string &)> allowed_;
};

std::shared_ptr<ex::StaticDataCertificateProvider> Identity(const Certificate & own) {
  return std::make_shared<ex::StaticDataCertificateProvider>(
      std::vector<ex::IdentityKeyCertPair>{{own.key_pem, own.certificate_pem}});
}

}  // namespace

void PeerSet::Add(const std::string & sha256) {
  std::lock_guard lock(mu_);
  ++counts_[sha256];
}

void PeerSet::Remove(const std::string & sha256) {
  std::lock_guard lock(mu_);
  const auto it = counts_.find(sha256);
  if (it != counts_.end() && --it->second == 0) counts_.erase(it);
}

bool PeerSet::Contains(const std::string & sha256) const {
  std::lock_guard lock(mu_);
  return counts_.contains(sha256);
}

std::shared_ptr<grpc::ServerCredentials> SeamServerCredentials(const Certificate & own,
                                                               std::shared_ptr<PeerSet> peers) {
  ex::TlsServerCredentialsOptions options(Identity(own));
  options.watch_identity_key_cert_pairs();
  // Required, and then judged by the verifier alone: a self-signed leaf has no chain to check.
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
  options.set_check_call_host(false);
  options.set_certificate_verifier(ex::ExternalCertificateVerifier::Create<HashVerifier>(
      [peers = std::move(peers)](const std::string & sha256) { return peers->Contains(sha256); }));
  return ex::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> SeamChannelCredentials(const Certificate & own, std::string peer_sha256) {
  ex::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Identity(own));
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(ex::ExternalCertificateVerifier::Create<HashVerifier>(
      [expected = std::move(peer_sha256)](const std::string & sha256) { return sha256 == expected; }));
  return ex::TlsCredentials(options);
}

}  // namespace meshnet
