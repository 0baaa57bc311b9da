#include "boot_token.h"

#include <openssl/crypto.h>

#include <fstream>
#include <iterator>

#include "bounds.h"

namespace meshnet {

Status ReadBootToken(const std::string & path, std::string * token) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || bytes.size() != kTokenBytes) {
    return {Code::kMalformed, path + ": not a token file of " + std::to_string(kTokenBytes) + " bytes"};
  }
  *token = std::move(bytes);
  return Status::Ok();
}

bool HasBootToken(const grpc::ServerContextBase & context, const std::string & token) {
  const auto & metadata = context.client_metadata();
  const auto found = metadata.find("meshnet-token-bin");
  return found != metadata.end() && found->second.size() == token.size() &&
         CRYPTO_memcmp(found->second.data(), token.data(), token.size()) == 0;
}

grpc::Status BootTokenRefused() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the call does not carry the token of this boot"};
}

}  // namespace meshnet
