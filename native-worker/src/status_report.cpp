#include "status_report.h"

#include <unistd.h>

#include <cstdio>

#include "bounds.h"

namespace meshnet {
namespace {

namespace pb = meshnet::seam::v1;

constexpr uint32_t kRetrySoonMs = 1000;   // a queue drains, a session ends
constexpr uint32_t kRetryLaterMs = 5000;  // a model loads

uint32_t RetryHint(Code code) {
  switch (code) {
    case Code::kResourceExhausted:
    case Code::kNoCapacity:
    case Code::kRateExceeded:
      return kRetrySoonMs;
    case Code::kNotServing:
      return kRetryLaterMs;
    default:
      return 0;
  }
}

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

std::string JsonString(const std::string & text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

std::string SafeText(const std::string & from, size_t limit) {
  std::string text = from;
  if (text.size() > limit) {
    while (limit > 0 && IsContinuation(text[limit])) --limit;
    text.resize(limit);
  }
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t n = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : 0;
    bool good = n != 0 && i + n <= text.size() && lead != 0xe0 && lead != 0xed;
    for (size_t k = 1; good && k < n; ++k) good = IsContinuation(text[i + k]);
    if (!good) text[i] = '?';
    i += good ? n : 1;
  }
  return text;
}

std::string CodeName(Code code) {
  constexpr char kPrefix[] = "ERROR_CODE_";
  const std::string & name = pb::ErrorCode_Name(static_cast<pb::ErrorCode>(code));
  return name.empty() ? "INTERNAL" : name.substr(sizeof(kPrefix) - 1);
}

Code CodeFrom(pb::ErrorCode code) {
  if (code == pb::ERROR_CODE_UNSPECIFIED || !pb::ErrorCode_IsValid(code)) return Code::kInternal;
  return static_cast<Code>(code);
}

pb::Error ToError(const Status & status, uint32_t fault_stage) {
  pb::Error error;
  error.set_code(static_cast<pb::ErrorCode>(status.code()));
  error.set_message(SafeText(status.message(), kMaxErrorMessageBytes));
  error.set_fault_stage(fault_stage);
  error.set_retry_after_ms(RetryHint(status.code()));
  return error;
}

Status FromError(const pb::Error & error) { return {CodeFrom(error.code()), error.message()}; }

grpc::Status ToGrpc(const Status & status, grpc::ServerContextBase * context) {
  if (status.ok()) return grpc::Status::OK;
  context->AddTrailingMetadata("meshnet-error-bin", ToError(status, 0).SerializeAsString());
  return {grpc::StatusCode::FAILED_PRECONDITION,
          CodeName(status.code()) + ": " + SafeText(status.message(), kMaxErrorMessageBytes)};
}

void PrintStatus(const Status & status) {
  const std::string line = "{\"error\":{\"code\":" + JsonString(CodeName(status.code())) +
                           ",\"message\":" + JsonString(SafeText(status.message(), kMaxErrorMessageBytes)) + "}}\n";
  size_t at = 0;
  while (at < line.size()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data() + at, line.size() - at);
    if (n <= 0) return;
    at += static_cast<size_t>(n);
  }
}

}  // namespace meshnet
