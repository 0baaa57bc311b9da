// SHA-256 as lowercase hex, for the programs that compare logits.
// Threads: any; no shared state.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace meshnet {

class Sha256 {
 public:
  Sha256() : ctx_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!ctx_ || EVP_DigestInit_ex(ctx_.get(), EVP_sha256(), nullptr) != 1) throw std::runtime_error("no SHA-256");
  }

  void Add(const void * data, size_t size) { EVP_DigestUpdate(ctx_.get(), data, size); }

  // The object is spent afterwards.
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(ctx_.get(), digest, &size);
    std::string hex;
    for (unsigned int i = 0; i < size; i++) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[digest[i] >> 4];
      hex += kDigits[digest[i] & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> ctx_;
};

}  // namespace meshnet
