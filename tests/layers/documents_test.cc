// What the documents say of the repository is so: every file and folder that they name is there,
// and every function that a walk through the code names is in the files of its row.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

#include "tests/layers/sources.h"
#include "tests/support/paths.h"

namespace outboard::layers {
namespace {

namespace fs = std::filesystem;

// `client/tensor/tensor.h`, and commands such as `scripts/test --fast`. A name with a star, a brace
// or the like stands for several and is not looked up.
const std::regex kNamed("`([a-z_]+/[A-Za-z0-9_./-]*)( [^`]*)?`");

// [a page](other.md), ![a picture](step.svg): of the page's own folder. What has a colon is
// elsewhere, what has no dot is code.
const std::regex kLinked("\\]\\(([A-Za-z0-9_./-]+\\.[a-z]+)\\)");

std::vector<std::string> Found(const std::regex& pattern, const std::string& text) {
  std::vector<std::string> names;
  for (std::sregex_iterator m(text.begin(), text.end(), pattern), end; m != end; ++m)
    names.push_back((*m)[1]);
  return names;
}
std::vector<std::string> Named(const std::string& text) { return Found(kNamed, text); }

bool IsOurs(const std::string& name) {
  const std::string folder = name.substr(0, name.find('/'));
  for (const std::string& ours : kFolders)
    if (folder == ours) return true;
  return folder == "docs" || folder == "scripts";
}

TEST(Documents, NamesAreFound) {
  EXPECT_EQ(Named("see `docs/a.md`, `scripts/test --fast`; `a * b`, `x/y*`, docs/b.md"),
            (std::vector<std::string>{"docs/a.md", "scripts/test"}));
  EXPECT_EQ(
      Found(kLinked, "![a](b.svg) and [c](../d.md), not [e](https://f.g), [h](#i) or [&](int j)"),
      (std::vector<std::string>{"b.svg", "../d.md"}));
}

TEST(Documents, EveryFileTheyNameIsThere) {
  const fs::path root = test::kSourceFolder;
  std::vector<fs::path> pages = {root / "README.md"};
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  for (const std::string& folder : kFolders)
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().filename() == "README.md") pages.push_back(entry.path());
  ASSERT_GT(pages.size(), 5u);
  int named = 0;
  for (const fs::path& page : pages) {
    // Measurements are of their day.
    if (page.parent_path().filename() == "measurements") continue;
    std::ifstream file(page);
    std::stringstream text;
    text << file.rdbuf();
    for (const std::string& name : Found(kLinked, text.str()))
      EXPECT_TRUE(fs::exists(page.parent_path() / name))
          << page.filename().string() << " links to " << name;
    for (const std::string& name : Named(text.str())) {
      if (!IsOurs(name)) continue;
      ++named;
      EXPECT_TRUE(fs::exists(root / name)) << page.filename().string() << " names " << name;
    }
  }
  EXPECT_GT(named, 50);
}

std::string WithoutComments(const std::string& code) {
  static const std::regex kComment("//[^\n]*");
  return std::regex_replace(code, kComment, "");
}

// Of a row of a walk, | number | what happens | functions | files |: the functions that the code of
// none of its files has, nor that of the header or source file of the same name; the row itself
// where it has other cells. Counts the functions in `checked`. `text`: of a file; empty: not there.
std::vector<std::string> Lost(const std::string& row,
                              const std::function<std::string(const std::string&)>& text,
                              int& checked) {
  std::vector<std::string> cells;
  std::stringstream in(row);
  for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cell);
  static const std::regex kNumbered("^ *[0-9].*"), kStep("^ [0-9]+ $");
  if (cells.size() < 2 || !cells[0].empty() || !std::regex_match(cells[1], kNumbered)) return {};
  if (cells.size() != 5 || !std::regex_match(cells[1], kStep)) return {row};
  static const std::regex kQuoted("`([^`]+)`");
  std::string all;
  for (const std::string& file : Found(kQuoted, cells[4])) {
    const std::string stem = file.substr(0, file.rfind('.'));
    all += WithoutComments(text(stem + ".h") + "\n" + text(stem + ".cc"));
  }
  std::vector<std::string> lost;
  for (const std::string& function : Found(kQuoted, cells[3])) {
    ++checked;
    const std::string bare = function.substr(0, function.find('('));
    const size_t scope = bare.rfind("::");
    const std::string name = scope == std::string::npos ? bare : bare.substr(scope + 2);
    if (!std::regex_search(all, std::regex("\\b" + name + "\\b"))) lost.push_back(function);
  }
  return lost;
}

TEST(Documents, AFunctionThatAWalkLost_IsFound) {
  const auto text = [](const std::string& file) {
    return std::string(file == "a/b.cc" ? "// Gone.\nvoid B::Go() { Ready(); }  // Read\n" : "");
  };
  int checked = 0;
  EXPECT_TRUE(Lost("| 1 | it goes | `B::Go(int)`, `Ready` | `a/b.h` |", text, checked).empty());
  EXPECT_EQ(checked, 2);
  EXPECT_EQ(Lost("| 1 | it goes | `B::Gone`, `Read` | `a/b.h` |", text, checked),
            (std::vector<std::string>{"B::Gone", "Read"}));
  EXPECT_EQ(checked, 4);
  EXPECT_TRUE(Lost("| layer | folders | `B::Gone` | `a/b.h` |", text, checked).empty());
  EXPECT_TRUE(Lost("1 | of no table | `B::Gone` | `a/b.h` |", text, checked).empty());
  for (const std::string wide : {"| 1 | it goes | on | `B::Go` | `a/b.h` |", "| 1 | `B::Go` |",
                                 "| 1b | it goes | `B::Go` | `a/b.h` |"})
    EXPECT_EQ(Lost(wide, text, checked), (std::vector<std::string>{wide}));
  EXPECT_EQ(checked, 4);
}

TEST(Documents, EveryFunctionOfAWalkIsWhereItSays) {
  const fs::path root = test::kSourceFolder;
  const auto text = [&](const std::string& name) {
    std::ifstream file(root / name);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
  };
  std::ifstream page(root / "docs/architecture.md");
  ASSERT_TRUE(page.is_open());
  int checked = 0;
  for (std::string row; std::getline(page, row);)
    for (const std::string& lost : Lost(row, text, checked))
      ADD_FAILURE() << (lost == row ? "not the four cells of a step, numbered 1, 2, 3 ..."
                                    : lost + " is in no file of its row")
                    << ":\n" << row;
  EXPECT_GT(checked, 50);
}

TEST(Documents, EveryDecisionIsInTheList) {
  const fs::path folder = fs::path(test::kSourceFolder) / "docs/decisions";
  std::ifstream file(folder / "README.md");
  std::stringstream list;
  list << file.rdbuf();
  int pages = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == "README.md") continue;
    ++pages;
    EXPECT_NE(list.str().find("](" + name + ")"), std::string::npos)
        << "docs/decisions/README.md has no row of " << name;
  }
  EXPECT_GT(pages, 100);
}

}  // namespace
}  // namespace outboard::layers
