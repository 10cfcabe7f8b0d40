// For fuzzers whose input becomes messages of proto/.
#pragma once

#include <google/protobuf/stubs/logging.h>

#include <string>
#include <vector>

#include "tests/fuzz/seeds.h"

namespace outboard::test {

// All of LLVMFuzzerInitialize.
inline int StartWireFuzzer(int argc, char** argv, const std::vector<std::string>& seeds) {
  google::protobuf::SetLogHandler(nullptr);  // a text that is no UTF-8 would be a line each time
  WriteSeeds(argc, argv, seeds);
  return 0;
}

}  // namespace outboard::test
