// The walks of docs/how-to-add.md are true: where a step says `file` (`text`), the file has the
// text; every file that it names exists.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/layers/sources.h"
#include "tests/support/paths.h"

namespace outboard::layers {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::regex kQuoted("`([a-z_]+/[A-Za-z0-9_./-]+)`\\s*\\(`([^`]+)`\\)");

// Steps of `page` whose file, below `root`, lacks their text.
std::vector<std::string> Untrue(const fs::path& root, const std::string& page, int* steps) {
  std::vector<std::string> untrue;
  for (std::sregex_iterator m(page.begin(), page.end(), kQuoted), end; m != end; ++m) {
    ++*steps;
    const std::string file = (*m)[1], text = (*m)[2];
    if (!fs::is_regular_file(root / file))
      untrue.push_back(file + " is not there");
    else if (ReadAll(root / file).find(text) == std::string::npos)
      untrue.push_back(file + " does not have " + text);
  }
  return untrue;
}

TEST(HowToAdd, WrongStep_Fires) {
  const fs::path root = test::kSourceFolder;
  int steps = 0;
  EXPECT_TRUE(
      Untrue(root, "see `README.md`, `tests/layers/sources.h` (`kFolders`)", &steps).empty());
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(Untrue(root, "`tests/layers/sources.h`\n  (`kNoSuchName`)", &steps).size(), 1u);
  EXPECT_EQ(Untrue(root, "`tests/layers/no_such_file.h` (`x`)", &steps).size(), 1u);
}

TEST(HowToAdd, EveryStep_IsTrue) {
  const fs::path root = test::kSourceFolder;
  int steps = 0;
  std::string all;
  for (const std::string& line : Untrue(root, ReadAll(root / "docs/how-to-add.md"), &steps))
    all += line + "\n";
  EXPECT_EQ(all, "");
  EXPECT_GE(steps, 25);
}

}  // namespace
}  // namespace outboard::layers
