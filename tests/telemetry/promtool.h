// Prometheus' own tool, which checks metrics, queries and alerts. Debian's package prometheus has
// it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace outboard::test {

inline bool HasPromtool() { return std::system("command -v promtool >/dev/null 2>&1") == 0; }

// Runs `promtool ARGS`, with `input` for its standard input. Returns what it says where it finds a
// fault, else "".
inline std::string Promtool(const std::string& args, const std::string& input = "") {
  const TempFolder folder;
  std::ofstream(folder / "in") << input;
  const std::string command =
      "promtool " + args + " <" + (folder / "in") + " >" + (folder / "out") + " 2>&1";
  if (std::system(command.c_str()) == 0) return "";
  const std::string said = ReadFile(folder / "out");
  return said.empty() ? "promtool failed" : said;
}

}  // namespace outboard::test

#define OB_NEEDS_PROMTOOL()           \
  if (!outboard::test::HasPromtool()) \
  GTEST_SKIP() << "promtool is not here: it is in the package prometheus"
