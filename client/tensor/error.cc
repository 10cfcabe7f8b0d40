#include "client/tensor/error.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"

namespace outboard {

std::string LineOf(const At& at) {
  const char* const slash = std::strrchr(at.file_name(), '/');
  return absl::StrCat(slash == nullptr ? at.file_name() : slash + 1, ":", at.line());
}

// The open line wins over one of this library that a nested call captured.
Error::Error(absl::Status status, At at, Mistake mistake)
    : status_(std::move(status)), at_(CallSite::Or(at)), mistake_(mistake) {
  what_ = absl::StrCat(LineOf(at_), ": ", status_.message(), " [",
                       absl::StatusCodeToString(status_.code()), "]");
}

void ThrowInvalid(const At& at, const std::string& message, Mistake mistake) {
  throw Error(absl::InvalidArgumentError(message), at, mistake);
}

void ThrowInvalid(const std::string& message, Mistake mistake) {
  ThrowInvalid(CallSite::Line(), message, mistake);
}

void ThrowIfError(const absl::Status& status) { ThrowIfError(status, CallSite::Line()); }

void ThrowIfError(const absl::Status& status, const At& at) {
  if (!status.ok()) throw Error(status, at);
}

}  // namespace outboard
