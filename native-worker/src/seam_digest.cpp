#include "seam_digest.h"

namespace meshnet {

RollingDigest::RollingDigest() : context_(EVP_MD_CTX_new()) {
  if (context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) context_.reset();
}

void RollingDigest::Add(std::string_view bytes) {
  if (context_ && EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) context_.reset();
}

std::string RollingDigest::Value() const {
  std::unique_ptr<EVP_MD_CTX, Free> copy(EVP_MD_CTX_new());
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int n = 0;
  if (!context_ || !copy || EVP_MD_CTX_copy_ex(copy.get(), context_.get()) != 1 ||
      EVP_DigestFinal_ex(copy.get(), reinterpret_cast<unsigned char *>(digest.data()), &n) != 1) {
    return {};
  }
  digest.resize(n);
  return digest;
}

}  // namespace meshnet
