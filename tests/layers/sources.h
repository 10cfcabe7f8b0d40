// The repository's own source files, for the tests that read them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/paths.h"

namespace outboard::layers {

inline const std::vector<std::string> kFolders = {
    "base",   "proto",   "telemetry", "wire", "compiler", "runtime", "storage",
    "worker", "gateway", "client",    "cli",  "python",   "tests"};

struct Source {
  std::string path;  // from the repository's root, with '/'
  std::string text;
};

inline bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
inline bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Every .h, .cc and .cpp of kFolders, ordered by path.
inline std::vector<Source> AllSources() {
  namespace fs = std::filesystem;
  const fs::path root = test::kSourceFolder;
  std::vector<Source> sources;
  for (const std::string& folder : kFolders) {
    if (!fs::exists(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (!entry.is_regular_file() ||
          (extension != ".h" && extension != ".cc" && extension != ".cpp"))
        continue;
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      sources.push_back({fs::relative(entry.path(), root).generic_string(), text.str()});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

}  // namespace outboard::layers
