#include "client/tensor/error.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard {

Error::Error(absl::Status status, At at) : status_(std::move(status)), at_(at) {
  const char* const slash = std::strrchr(at_.file_name(), '/');
  what_ = absl::StrCat(slash == nullptr ? at_.file_name() : slash + 1, ":", at_.line(), ": ",
                       status_.message(), " [", absl::StatusCodeToString(status_.code()), "]");
}

void ThrowInvalid(const At& at, const std::string& message) {
  throw Error(absl::InvalidArgumentError(message), at);
}

void ThrowIfError(const absl::Status& status, const At& at) {
  if (!status.ok()) throw Error(status, at);
}

}  // namespace outboard
