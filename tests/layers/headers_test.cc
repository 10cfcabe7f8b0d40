// What a header must tell a reader who has not seen its .cc file.
//
// A public header is one that another folder includes, or one of the client's that programs
// include. It opens with what it is for; says which errors come out of it where it returns a
// Status; and every type in it is explained, by a comment of its own, at its members, or by name in
// the opening. In every header, a number that counts in some unit carries it in its name or says it
// in a comment.
//
// Every rule is tried on made-up headers first, so that a rule which never fires is noticed.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "tests/layers/sources.h"

namespace outboard::layers {
namespace {

using Strings = std::vector<std::string>;

const std::regex kInclude("^\\s*#\\s*include\\s*\"([^\"]+\\.h)\"");
const std::regex kStatus("absl::Status(Or<|\\b)");
const std::regex kCode(
    "\\b(INVALID_ARGUMENT|RESOURCE_EXHAUSTED|NOT_FOUND|UNAVAILABLE|INTERNAL|FAILED_PRECONDITION|"
    "ABORTED|DATA_LOSS|"
    "UNKNOWN|UNIMPLEMENTED|UNAUTHENTICATED|PERMISSION_DENIED|DEADLINE_EXCEEDED|CANCELLED|ALREADY_"
    "EXISTS|"
    "OUT_OF_RANGE)\\b");
const std::regex kType("^(?:struct|class|enum class|enum) (\\w+)[^;]*\\{");
const std::regex kUnitWanted(
    "\\b(?:u?int(?:8|16|32|64)?_t|int|double|float|size_t)\\s+"
    "(\\w*(?:timeout|delay|period|price|memory|duration|ttl|elapsed|deadline|interval|grace|"
    "latency))(\\w*)\\s*[=;,){]");
const std::regex kUnit(
    "_(ns|us|ms|s|bytes|micro_usd|usd|flops|items)(_max|_min)?_?$|(Ns|Us|Ms|S|Bytes|MicroUsd)(Max|"
    "Min)?$");

Strings Lines(const std::string& text) {
  Strings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string CommentOf(const std::string& line) {
  const size_t at = line.find("//");
  return at == std::string::npos ? "" : line.substr(at);
}

// The line after which the body of the type that opens on line `first` ends.
size_t EndOfBody(const Strings& lines, size_t first) {
  int depth = 0;
  for (size_t i = first; i < lines.size(); ++i) {
    for (const char c : lines[i].substr(0, lines[i].find("//")))
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (depth <= 0) return i;
  }
  return lines.size() - 1;
}

// What is missing in a public header.
Strings MissingInPublic(const Source& header) {
  Strings missing;
  const Strings lines = Lines(header.text);
  std::string opening, comments;
  size_t opening_lines = 0;
  for (; opening_lines < lines.size() && StartsWith(lines[opening_lines], "//"); ++opening_lines)
    opening += lines[opening_lines] + "\n";
  for (const std::string& line : lines) comments += CommentOf(line) + "\n";
  if (opening_lines < 2)
    missing.push_back(header.path + ": opens with less than two lines on what it is for");
  if (std::regex_search(header.text, kStatus) && !std::regex_search(comments, kCode))
    missing.push_back(header.path + ": returns a Status and names no code that it fails with");
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (!std::regex_search(lines[i], match, kType)) continue;
    const std::string name = match[1];
    size_t above = i;
    while (above > 0 && StartsWith(lines[above - 1], "template")) --above;
    bool told = above > 0 && StartsWith(lines[above - 1], "//");
    for (size_t j = i; !told && j <= EndOfBody(lines, i); ++j) told = !CommentOf(lines[j]).empty();
    if (!told && !std::regex_search(opening, std::regex("\\b" + name + "s?\\b")))
      missing.push_back(header.path + ":" + std::to_string(i + 1) + ": nothing is said of " + name);
  }
  return missing;
}

// Numbers without a unit, in any header.
Strings MissingUnits(const Source& header) {
  Strings missing;
  const Strings lines = Lines(header.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    const bool told =
        !CommentOf(lines[i]).empty() || (i > 0 && code.find('(') == std::string::npos &&
                                         std::regex_search(lines[i - 1], std::regex("^\\s*//")));
    for (std::sregex_iterator m(code.begin(), code.end(), kUnitWanted), end; m != end; ++m) {
      const std::string name = (*m)[1].str() + (*m)[2].str();
      if (!told && !std::regex_search(name, kUnit))
        missing.push_back(header.path + ":" + std::to_string(i + 1) + ": in what unit is " + name +
                          "?");
    }
  }
  return missing;
}

std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Included from another folder than its own, tests aside; or meant for programs.
std::vector<Source> PublicHeaders(const std::vector<Source>& sources) {
  std::set<std::string> used;
  for (const Source& source : sources) {
    if (StartsWith(source.path, "tests/")) continue;
    for (const std::string& line : Lines(source.text)) {
      std::smatch match;
      if (std::regex_search(line, match, kInclude) && Folder(match[1]) != Folder(source.path))
        used.insert(match[1]);
    }
  }
  std::vector<Source> headers;
  for (const Source& source : sources) {
    const bool of_programs =
        StartsWith(source.path, "client/nn/") || source.path == "client/tensor/tensor.h";
    if (EndsWith(source.path, ".h") && (used.count(source.path) != 0 || of_programs))
      headers.push_back(source);
  }
  return headers;
}

std::string Joined(const Strings& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST(Headers, RulesFire) {
  const struct {
    std::string text;
    bool complete;
  } cases[] = {
      {"// One.\n#pragma once\n", false},
      {"// One.\n// Two.\n#pragma once\n", true},
      {"// One.\n// Two.\nabsl::Status F();\n", false},
      {"// One.\n// Errors: NOT_FOUND.\nabsl::Status F();\n", true},
      {"// One.\n// Two.\nabsl::StatusOr<int> F();  // NOT_FOUND: no such thing\n", true},
      {"// One.\n// Two.\n\nstruct A {\n  int b;\n};\n", false},
      {"// One.\n// Two.\n\nstruct A {\n  int b;  // of something\n};\n", true},
      {"// One.\n// Two.\n\nstruct A {\n  int b;\n};  // late\nint c;  // no\n", true},
      {"// One.\n// Two.\n\nstruct A {\n  int b;\n};\nint c;  // of c\n", false},
      {"// One.\n// Two of A.\n\nstruct A {\n  int b;\n};\n", true},
      {"// One.\n// Two.\n\n// Why.\ntemplate <typename T>\nclass A : public B {\n};\n", true},
      {"// One.\n// Two.\nclass A;\n", true},
  };
  for (const auto& c : cases)
    EXPECT_EQ(MissingInPublic({"a.h", c.text}).empty(), c.complete) << c.text;
  const struct {
    std::string text;
    bool complete;
  } units[] = {
      {"int timeout = 3;\n", false},
      {"int timeout_ms = 3;\n", true},
      {"int64_t kTtlMs = 3;\n", true},
      {"void F(int a, double price);\n", false},
      {"void F(int a, double price_usd);\n", true},
      {"double price;  // US dollars an hour\n", true},
      {"// In seconds.\nint timeout = 3;\n", true},
      {"int64_t memory_bytes_max = 0;\n", true},
      {"int timeouts_seen = 3;\n", false},
  };
  for (const auto& c : units)
    EXPECT_EQ(MissingUnits({"a.h", c.text}).empty(), c.complete) << c.text;
}

TEST(Headers, PublicOnesAreDocuments) {
  const std::vector<Source> headers = PublicHeaders(AllSources());
  ASSERT_GT(headers.size(), 30u);
  std::string all;
  for (const Source& header : headers) all += Joined(MissingInPublic(header));
  EXPECT_EQ(all, "");
}

TEST(Headers, UnitsAreSaid) {
  std::string all;
  for (const Source& source : AllSources())
    if (EndsWith(source.path, ".h")) all += Joined(MissingUnits(source));
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace outboard::layers
