// A node's serial number as it stands in its certificate, in lists, in names of files and in the
// log; and the subject of that certificate, which no worker's name can be (worker_name.h).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace outboard::gateway {

inline constexpr size_t kNodeSerialBytesMax = 56;
inline constexpr char kNodeSubject[] = "node:";

// Errors: INVALID_ARGUMENT
inline absl::Status CheckNodeSerial(std::string_view serial) {
  const bool good = !serial.empty() && serial.size() <= kNodeSerialBytesMax &&
                    absl::ascii_isalnum(static_cast<unsigned char>(serial.front())) &&
                    std::all_of(serial.begin(), serial.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '_' || c == '-';
                    });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a node's serial number is 1 to ", kNodeSerialBytesMax,
      " letters, digits, '.', '_' and '-', the first a letter or a digit; others are written '_'"));
}

inline std::string NodeSubject(std::string_view serial) {
  return kNodeSubject + std::string(serial);
}

// "" where it is no node's.
inline std::string NodeOfSubject(std::string_view subject) {
  return subject.starts_with(kNodeSubject) ? std::string(subject.substr(sizeof kNodeSubject - 1))
                                           : std::string();
}

}  // namespace outboard::gateway
