// A worker's name where it is proved by a certificate (gateway/accounts/worker_tokens.h): it stands
// in lists, in the log and as the subject of the certificate, which has 64 bytes for it.
#pragma once

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace outboard::gateway {

inline constexpr size_t kProvedNameBytesMax = 60;

// Errors: INVALID_ARGUMENT
inline absl::Status CheckWorkerName(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kProvedNameBytesMax &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '_' || c == '-';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a worker's --name is here 1 to ", kProvedNameBytesMax,
                   " letters, digits, '.', '_' and '-', such as its serial number"));
}

}  // namespace outboard::gateway
