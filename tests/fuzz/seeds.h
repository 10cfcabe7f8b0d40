// The corpus that a fuzzer begins with. Each target makes its own from code of ours when it starts,
// so that no binary files are kept and a change of the encoding changes the seeds.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::test {

// ByteSource::Block as bytes.
inline std::string BlockOf(std::string_view bytes) {
  std::string out{static_cast<char>(bytes.size() % 256), static_cast<char>(bytes.size() / 256)};
  return out.append(bytes);
}

// For LLVMFuzzerInitialize: writes `seeds` into the first corpus folder that the command line
// names, if any.
inline void WriteSeeds(int argc, char** argv, const std::vector<std::string>& seeds) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-' || !std::filesystem::is_directory(argv[i])) continue;
    for (size_t s = 0; s < seeds.size(); ++s)
      std::ofstream(std::filesystem::path(argv[i]) / ("seed-" + std::to_string(s)),
                    std::ios::binary)
          << seeds[s];
    return;
  }
}

}  // namespace outboard::test
