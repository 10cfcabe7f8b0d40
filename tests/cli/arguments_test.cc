#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace outboard::cli {
namespace {

// The number of bytes, or nothing where the program would have ended with wrong usage.
std::optional<uint64_t> Bytes(const std::string& text) {
  Arguments arguments("test", "A test");
  uint64_t bytes = 7;
  arguments.AddBytes("--size", &bytes, "A size");
  const char* const argv[] = {"test", "--size", text.c_str()};
  const std::optional<int> exit_code = arguments.Parse(3, argv);
  if (!exit_code.has_value()) return bytes;
  EXPECT_EQ(exit_code, 2);
  return std::nullopt;
}

TEST(Arguments, NumbersOfBytes) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const struct {
    const char* text;
    uint64_t bytes;
  } cases[] = {{"0", 0},
               {"1000", 1000},
               {"12b", 12},
               {"10GB", 10'000'000'000},
               {"10 gb", 10'000'000'000},
               {"10g", 10'000'000'000},
               {"1.5GB", 1'500'000'000},
               {"512MB", 512'000'000},
               {"3kB", 3000},
               {"8GiB", 8 * kGiB},
               {"8Gi", 8 * kGiB},
               {"0.5GiB", kGiB / 2},
               {"2TiB", 2048 * kGiB},
               {"7EiB", 7 * kGiB * kGiB}};
  for (const auto& c : cases) EXPECT_EQ(Bytes(c.text), c.bytes) << c.text;
  for (const char* wrong : {"", "-1", "-5GB", "12XB", "GB", "ib", "5ib", "5i", "1e3", "nan", "inf",
                            "0x10", "1GB5", "8EiB", "1,5GB", "5 G B", "99999999999GB"})
    EXPECT_EQ(Bytes(wrong), std::nullopt) << wrong;
}

TEST(Arguments, AWrongOneIsSaidInALine) {
  Arguments arguments("test", "A test");
  int steps = 3;
  arguments.Add("--steps", &steps, "Steps").Between(1, 9);
  for (const char* wrong : {"--steps=x", "--steps=10", "--nosuch", "more"}) {
    const char* const argv[] = {"test", wrong};
    testing::internal::CaptureStderr();
    EXPECT_EQ(arguments.Parse(2, argv), 2) << wrong;
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(text.starts_with("test: ")) << text;
    EXPECT_TRUE(text.ends_with("; see `test --help`\n")) << text;
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  }
}

// The message has the value and what would do, as people write it.
TEST(Arguments, AWrongValueIsNamed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"serve", "--steps", "0"}, "\"0\" is no whole number from 1 to 9"},
      {{"serve", "--steps", "2.5"}, "\"2.5\" is no whole number from 1 to 9"},
      {{"serve", "--steps", "x"}, "\"x\" is no whole number from 1 to 9"},
      {{"serve", "--price", "-1"}, "\"-1\" is no number from 0 to 1000000"},
      {{"serve", "--price", "much"}, "\"much\" is no number from 0 to 1000000"},
      {{"serve", "--price", "nan"}, "\"nan\" is no number from 0 to 1000000"},
      {{"serve", "--file", "/nowhere/a"}, "\"/nowhere/a\" is not there"},
      {{"frob"}, "there is no subcommand \"frob\"; see `test --help`"},
      {{"key", "frob"}, "there is no subcommand \"frob\"; see `test key --help`"},
      {{"key"}, "a subcommand is required; see `test key --help`"},
      {{"serve", "--frob"}, "there is no option \"--frob\"; see `test serve --help`"},
      {{"serve", "more"}, "nothing takes the argument \"more\"; see `test serve --help`"}};
  for (const auto& [words, wrong] : cases) {
    Arguments arguments("test", "A test");
    arguments.RequireSubcommand();
    int steps = 3;
    double price = 0.5;
    std::string file;
    Command serve = arguments.Subcommand("serve", "Serves");
    serve.Add("--steps", &steps, "Steps").Between(1, 9);
    serve.Add("--price", &price, "US dollars").Between(0.0, 1e6);
    serve.Add("--file", &file, "A file").ExistingPath();
    Command key = arguments.Subcommand("key", "Keys");
    key.RequireSubcommand();
    key.Subcommand("create", "Make one");
    std::vector<const char*> argv = {"test"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    testing::internal::CaptureStderr();
    EXPECT_EQ(arguments.Parse(static_cast<int>(argv.size()), argv.data()), 2) << wrong;
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(wrong), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  }
}

TEST(Arguments, HelpHasRangesAsPeopleWriteThem) {
  Arguments arguments("test", "A test");
  int steps = 3;
  double price = 0.5;
  arguments.Add("--steps", &steps, "Steps").Between(1, 9);
  arguments.Add("--price", &price, "US dollars").Between(0.0, 1e6);
  const char* const argv[] = {"test", "--help"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(arguments.Parse(2, argv), 0);
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_NE(help.find("--steps N"), std::string::npos) << help;
  EXPECT_NE(help.find("(1 to 9; default: 3)"), std::string::npos) << help;
  EXPECT_NE(help.find("(0 to 1000000; default: 0.5)"), std::string::npos) << help;
}

// A program of two commands, each with options and a command below it, that is asked for `words`.
// Returns the exit code; -1: wrong usage.
int RunTwoCommands(const std::vector<const char*>& words, int& number) {
  std::vector<const char*> argv = {"test"};
  argv.insert(argv.end(), words.begin(), words.end());
  Arguments arguments("test", "A test", words.empty() ? nullptr : words.front());
  arguments.RequireSubcommand();
  int code = 10;
  for (const char* const name : {"one", "two"}) {
    Command command = arguments.Subcommand(name, "A command");
    Option n = command.Add("--number", &number, "A number").Between(1, 9);
    command.Add("--other", &number, "Another").NotNegative().Excludes(n);
    Command list = command.ListSubcommand("Lists");
    list.Add("--number", &number, "A number").Positive();
    list.Runs([=] { return code + 1; });
    command.Runs([=] { return code + (n.Given() ? 2 : 0); });
    code += 10;
  }
  testing::internal::CaptureStderr();
  const int exit_code = arguments.Run(static_cast<int>(argv.size()), argv.data());
  return testing::internal::GetCapturedStderr().empty() ? exit_code : -1;
}

TEST(Arguments, TheCommandThatIsAskedFor_HasItsOptions_WhateverTheOthersAre) {
  int number = 0;
  EXPECT_EQ(RunTwoCommands({"one"}, number), 10);
  EXPECT_EQ(RunTwoCommands({"two", "--number", "7"}, number), 22);
  EXPECT_EQ(number, 7);
  EXPECT_EQ(RunTwoCommands({"two", "ls", "--number", "8"}, number), 21);
  EXPECT_EQ(number, 8);
  EXPECT_EQ(RunTwoCommands({"one", "list"}, number), 11);
  for (const std::vector<const char*>& wrong :
       {std::vector<const char*>{}, {"three"}, {"--number", "1"}, {"one", "two"},
        {"two", "--number", "10"}, {"one", "--number", "1", "--other", "1"}})
    EXPECT_EQ(RunTwoCommands(wrong, number), -1);
}

}  // namespace
}  // namespace outboard::cli
