// Runs a command of the shell and returns what it prints.
#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"

namespace outboard::test {

// Errors included. Errors: INTERNAL with the same words, if the command fails.
inline absl::StatusOr<std::string> OutputOf(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  OB_CHECK(pipe != nullptr);
  std::string words;
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) words.append(piece, count);
  if (pclose(pipe) != 0) return absl::InternalError(words);
  return words;
}

}  // namespace outboard::test
