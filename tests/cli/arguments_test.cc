#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

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

}  // namespace
}  // namespace outboard::cli
