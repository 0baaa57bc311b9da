// RollingDigest: SHA-256 over a sequence of byte strings whose value can be read at any point.
// Threads: one at a time.
#pragma once

#include <openssl/evp.h>

#include <memory>
#include <string>
#include <string_view>

namespace meshnet {

class RollingDigest {
 public:
  RollingDigest();
  void Add(std::string_view bytes);
  std::string Value() const;  // 32 bytes; empty when OpenSSL failed

 private:
  struct Free {
    void operator()(EVP_MD_CTX * context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace meshnet
