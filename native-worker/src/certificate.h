// Certificate: the worker's key and self-signed certificate, made at each boot, and the hashes that peers pin.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "status.h"

namespace meshnet {

struct Certificate {
  std::string key_pem;
  std::string certificate_pem;
  std::string der;     // at most kMaxCertificateBytes
  std::string sha256;  // of der; what advertisements carry
};

// P-256, CA:FALSE, SAN DNS:seam.meshnet. kInternal: OpenSSL refused.
Status MakeCertificate(Certificate * out);

// SHA-256 of the DER of the first certificate in a PEM; empty when there is none.
std::string PemCertificateSha256(std::string_view pem);
// PEM of one DER certificate; empty when the bytes are not one.
std::string PemFromDer(std::string_view der);

std::string Sha256(std::string_view bytes);
// Cryptographically random. False: the system has no entropy.
bool RandomBytes(size_t n, std::string * out);
// Length leaks, contents do not.
bool EqualConstantTime(std::string_view a, std::string_view b);

}  // namespace meshnet
