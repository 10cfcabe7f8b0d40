// What LLVM's tools make of an object for AMD's GPUs: linked by lld, its notes read, disassembled.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace outboard::test {

struct AmdgpuCode {
  std::string text;           // disassembled
  int64_t private_bytes = 0;  // of a work-item, in memory behind all caches
  int64_t spills = 0;         // registers that got no place
};

// A program of LLVM 19 that is missing (lld-19, llvm-19), empty if all are there.
std::string MissingAmdgpuTool();

// Errors: INTERNAL with the tools' words.
absl::StatusOr<AmdgpuCode> LinkAndDisassemble(const std::string& object, const std::string& arch);

}  // namespace outboard::test
