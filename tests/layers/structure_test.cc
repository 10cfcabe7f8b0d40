// The shape of the tree: folders that can be read in one sitting, a README in each, one meaning for
// each type name, and lines that fit a screen.
//
// Each rule has a list of today's exceptions. A list only shrinks: an exception that is no longer
// needed fails the test too.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/layers/sources.h"

namespace outboard::layers {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

constexpr int kFilesMax = 25;
constexpr size_t kColumnsMax = 100;

std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string Joined(const Strings& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

// ---- folders

// Folders with more than kFilesMax source files, tests aside.
Strings WideFolders(const Strings& paths) {
  std::map<std::string, int> files;
  for (const std::string& path : paths) ++files[Folder(path)];
  Strings wide;
  for (const auto& [folder, count] : files)
    if (count > kFilesMax)
      wide.push_back(folder + " has " + std::to_string(count) + " source files, at most " +
                     std::to_string(kFilesMax) + ": split it by what its files do");
  return wide;
}

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".h", ".cc", ".cpp", ".py", ".proto"};
  return kExtensions.count(path.extension().string()) != 0;
}

// Paths of all source files outside tests, from the repository's root.
Strings SourcePaths() {
  const fs::path root = OUTBOARD_SOURCE_DIR;
  Strings paths;
  for (const std::string& folder : kFolders) {
    if (folder == "tests" || !fs::exists(root / folder)) continue;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && IsSource(entry.path()) &&
          entry.path().string().find("__pycache__") == std::string::npos)
        paths.push_back(fs::relative(entry.path(), root).generic_string());
  }
  return paths;
}

TEST(Structure, WideFolder_Fires) {
  Strings paths;
  for (int i = 0; i < kFilesMax; ++i) paths.push_back("client/a/f" + std::to_string(i) + ".cc");
  EXPECT_TRUE(WideFolders(paths).empty());
  paths.push_back("client/a/one_more.h");
  EXPECT_EQ(WideFolders(paths).size(), 1u);
}

TEST(Structure, Folders_AreNarrow) {
  const Strings paths = SourcePaths();
  ASSERT_GT(paths.size(), 400u) << "looked in " << OUTBOARD_SOURCE_DIR;
  EXPECT_EQ(Joined(WideFolders(paths)), "");
}

TEST(Structure, Folders_HaveReadmes) {
  const fs::path root = OUTBOARD_SOURCE_DIR;
  std::set<std::string> folders;
  for (const std::string& path : SourcePaths()) folders.insert(Folder(path));
  Strings missing;
  for (const std::string& folder : folders) {
    std::ifstream file(root / folder / "README.md");
    std::stringstream text;
    text << file.rdbuf();
    for (const char* part : {"**May include:**", "**Start with:**", "**To add something:**"})
      if (text.str().find(part) == std::string::npos)
        missing.push_back(folder + "/README.md lacks " + part);
  }
  EXPECT_EQ(Joined(missing), "");
}

// ---- names

// A type that is defined at the level of a namespace: neither nested nor only declared.
const std::regex kType(
    "^(?:struct|class|enum class|enum) (?:\\[\\[\\w+\\]\\] )?(\\w+)\\b(?!::)[^;(]*\\{");

// Type names that headers define more than once, with where.
Strings RepeatedTypes(const std::vector<Source>& sources) {
  std::map<std::string, std::set<std::string>> where;
  for (const Source& source : sources) {
    if (!EndsWith(source.path, ".h") || StartsWith(source.path, "tests/")) continue;
    std::istringstream lines(source.text);
    for (std::string line; std::getline(lines, line);) {
      std::smatch match;
      if (std::regex_search(line, match, kType)) where[match[1]].insert(source.path);
    }
  }
  Strings repeated;
  for (const auto& [name, paths] : where) {
    if (paths.size() < 2) continue;
    std::string row = name + ":";
    for (const std::string& path : paths) row += " " + path;
    repeated.push_back(row);
  }
  return repeated;
}

TEST(Structure, RepeatedType_Fires) {
  EXPECT_EQ(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "struct A final : B {\n"}}).size(),
            1u);
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "class A;\n"}}).empty());
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.h", "  class A {\n"}}).empty());
  EXPECT_TRUE(RepeatedTypes({{"a/a.h", "class A {\n"}, {"b/b.cc", "class A {\n"}}).empty());
}

TEST(Structure, TypeNames_HaveOneMeaning) {
  EXPECT_EQ(Joined(RepeatedTypes(AllSources())), "")
      << "one name, one meaning: rename one of each pair (docs/glossary.md)";
}

// ---- lines

// Characters, not bytes: continuation bytes of UTF-8 do not count.
size_t Columns(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

Strings LongLines(const Source& source) {
  Strings found;
  std::istringstream lines(source.text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (Columns(line) > kColumnsMax)
      found.push_back(source.path + ":" + std::to_string(number) + ": " +
                      std::to_string(Columns(line)) + " columns, at most " +
                      std::to_string(kColumnsMax));
  }
  return found;
}

TEST(Structure, LongLine_Fires) {
  EXPECT_TRUE(LongLines({"a.h", std::string(kColumnsMax, 'x')}).empty());
  EXPECT_EQ(LongLines({"a.h", std::string(kColumnsMax + 1, 'x')}).size(), 1u);
  std::string arrows;
  for (size_t i = 0; i < kColumnsMax; ++i) arrows += "─";
  EXPECT_TRUE(LongLines({"a.h", arrows}).empty());
}

TEST(Structure, Lines_FitAScreen) {
  std::string all;
  for (const Source& source : AllSources())
    all += Joined(LongLines(source));
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace outboard::layers
