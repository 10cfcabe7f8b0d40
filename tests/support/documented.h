// docs/when-it-breaks.md quotes messages that users see; tests that cause them look the quotes up
// here, so that the page and the program agree.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace outboard::test {

// The quotes, each between backticks, of the second cell of the row whose first cell is `row`,
// as one regular expression in which <...> stands for anything.
inline std::string DocumentedPattern(const std::string& row) {
  std::istringstream page(ReadFile(test::SourceFile("docs/when-it-breaks.md")));
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| " + row + " |")) continue;
    const size_t begin = row.size() + 5, end = line.find(" | ", begin);
    const std::string cell = line.substr(begin, end - begin);
    std::string pattern;
    const std::regex quote("`([^`]*)`");
    for (std::sregex_iterator it(cell.begin(), cell.end(), quote), none; it != none; ++it) {
      std::string text =
          std::regex_replace((*it)[1].str(), std::regex(R"([.^$|()\[\]{}*+?\\])"), R"(\$&)");
      pattern +=
          (pattern.empty() ? "" : "|") + std::regex_replace(text, std::regex("<[^>]*>"), ".+");
    }
    return pattern;
  }
  return "";
}

// True if `text` contains the page's quote.
inline void ExpectAsDocumented(const std::string& row, const std::string& text) {
  const std::string pattern = DocumentedPattern(row);
  ASSERT_FALSE(pattern.empty()) << "docs/when-it-breaks.md has no row \"" << row << "\"";
  EXPECT_TRUE(std::regex_search(text, std::regex(pattern)))
      << "\"" << row << "\" is quoted as\n  " << pattern << "\nbut is\n  " << text;
}
// "CODE: message".
inline void ExpectAsDocumented(const std::string& row, const absl::Status& status) {
  ExpectAsDocumented(row, status.ToString());
}

}  // namespace outboard::test
