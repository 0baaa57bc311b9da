#include "certificate.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include <memory>

#include "bounds.h"

namespace meshnet {
namespace {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T * p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using Cert = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>>;

// Longer than a process should live, and before the skew of any sane clock.
constexpr long kValidSeconds = 400L * 24 * 3600;
constexpr long kSkewSeconds = 24L * 3600;
constexpr int kSerialBytes = 16;

std::string Contents(BIO * bio) {
  char * data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  return n > 0 ? std::string(data, static_cast<size_t>(n)) : std::string();
}

bool AddExtension(X509 * cert, int nid, const char * value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, cert, cert, nullptr, nullptr, 0);
  Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension && X509_add_ext(cert, extension.get(), -1) == 1;
}

bool SetSerial(X509 * cert) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1) return false;
  bytes[0] &= 0x7f;  // positive
  std::unique_ptr<BIGNUM, Deleter<BN_free>> number(BN_bin2bn(bytes, sizeof(bytes), nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert)) != nullptr;
}

bool Fill(X509 * cert, EVP_PKEY * key) {
  X509_NAME * name = X509_get_subject_name(cert);
  return X509_set_version(cert, 2) == 1 && SetSerial(cert) &&
         X509_gmtime_adj(X509_getm_notBefore(cert), -kSkewSeconds) != nullptr &&
         X509_gmtime_adj(X509_getm_notAfter(cert), kValidSeconds) != nullptr && X509_set_pubkey(cert, key) == 1 &&
         X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char *>("seam.meshnet"),
                                    -1, -1, 0) == 1 &&
         X509_set_issuer_name(cert, name) == 1 && AddExtension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
         AddExtension(cert, NID_subject_alt_name, "DNS:seam.meshnet") && X509_sign(cert, key, EVP_sha256()) > 0;
}

std::string Der(X509 * cert) {
  const int n = i2d_X509(cert, nullptr);
  if (n <= 0) return {};
  std::string der(static_cast<size_t>(n), '\0');
  auto * at = reinterpret_cast<unsigned char *>(der.data());
  return i2d_X509(cert, &at) == n ? der : std::string();
}

std::string Pem(X509 * cert) {
  Bio bio(BIO_new(BIO_s_mem()));
  return bio && PEM_write_bio_X509(bio.get(), cert) == 1 ? Contents(bio.get()) : std::string();
}

}  // namespace

Status MakeCertificate(Certificate * out) {
  Key key(EVP_EC_gen("P-256"));
  Cert cert(X509_new());
  Bio key_bio(BIO_new(BIO_s_mem()));
  if (!key || !cert || !key_bio || !Fill(cert.get(), key.get()) ||
      PEM_write_bio_PKCS8PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return {Code::kInternal, "OpenSSL could not make a certificate"};
  }
  Certificate made{Contents(key_bio.get()), Pem(cert.get()), Der(cert.get()), {}};
  if (made.key_pem.empty() || made.certificate_pem.empty() || made.der.empty() ||
      made.der.size() > kMaxCertificateBytes) {
    return {Code::kInternal, "the certificate could not be encoded within its limit"};
  }
  made.sha256 = Sha256(made.der);
  *out = std::move(made);
  return {};
}

std::string PemCertificateSha256(std::string_view pem) {
  Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  if (!bio) return {};
  Cert cert(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!cert) return {};
  const std::string der = Der(cert.get());
  return der.empty() ? std::string() : Sha256(der);
}

std::string PemFromDer(std::string_view der) {
  const auto * at = reinterpret_cast<const unsigned char *>(der.data());
  Cert cert(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  return cert ? Pem(cert.get()) : std::string();
}

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char *>(digest.data()));
  return digest;
}

bool RandomBytes(size_t n, std::string * out) {
  out->assign(n, '\0');
  return RAND_bytes(reinterpret_cast<unsigned char *>(out->data()), static_cast<int>(n)) == 1;
}

bool EqualConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace meshnet
