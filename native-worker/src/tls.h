// TLS: mutual, with both ends pinned by the SHA-256 of the other's certificate. There is no authority to trust.
// Threads: PeerSet from any thread; credentials are made once and shared.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "certificate.h"

namespace meshnet {

// The certificates that may finish a handshake with our listener. Counted: two lanes may name one peer.
class PeerSet {
 public:
  void Add(const std::string & sha256);
  void Remove(const std::string & sha256);
  bool Contains(const std::string & sha256) const;

 private:
  mutable std::mutex mu_;
  std::map<std::string, int> counts_;
};

// Strangers are refused inside the handshake, before any handler runs; the set may change while the server runs.
std::shared_ptr<grpc::ServerCredentials> SeamServerCredentials(const Certificate & own, std::shared_ptr<PeerSet> peers);

// Accepts one certificate only.
std::shared_ptr<grpc::ChannelCredentials> SeamChannelCredentials(const Certificate & own, std::string peer_sha256);

}  // namespace meshnet
