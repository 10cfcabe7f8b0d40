// Headers of GGUF files: what stands in them is read, and a file that is not one, or that two
// readers could understand differently, is refused.
#include "client/files/gguf_header.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/client/gguf_writer.h"

namespace outboard::files {
namespace {

using absl::StatusCode;
using test::Gguf;

absl::StatusOr<GgufHeader> Parse(const std::string& bytes) {
  return ParseGgufHeader(bytes, bytes.size());
}

TEST(GgufHeader, IsReadAsItStands) {
  Gguf file;
  file.Value("a.u8", 0, uint8_t{200})
      .Value("a.i8", 1, int8_t{-3})
      .Value("a.u16", 2, uint16_t{65535});
  file.Value("a.i16", 3, int16_t{-2}).Value("a.u32", 4, uint32_t{4000000000}).Value("a.i32", 5, -7);
  file.Value("a.f32", 6, 0.5f).Value("a.bool", 7, uint8_t{1}).Text("a.text", "caf\xc3\xa9");
  file.Value("a.u64", 10, ~uint64_t{0}).Value("a.i64", 11, std::numeric_limits<int64_t>::min());
  file.Value("a.f64", 12, 1e300)
      .Texts("a.tokens", {"x", "", "z"})
      .List("a.scores", 6, std::vector<float>{1.5f, -2.f});
  file.List("a.flags", 7, std::vector<uint8_t>{1, 0}).List("a.none", 5, std::vector<int32_t>{});
  file.Array("weight", {4, 3}, 0, std::string(48, 'w'))
      .Array("q", {64, 2}, 2, std::string(72, 'q'));
  file.Array("scalar", {}, 28, std::string(8, 's'));
  const auto header = Parse(file.Write());
  ASSERT_TRUE(header.ok()) << header.status();
  const std::vector<std::pair<std::string, GgufValue>> wanted = {
      {"a.u8", int64_t{200}},
      {"a.i8", int64_t{-3}},
      {"a.u16", int64_t{65535}},
      {"a.i16", int64_t{-2}},
      {"a.u32", int64_t{4000000000}},
      {"a.i32", int64_t{-7}},
      {"a.f32", 0.5},
      {"a.bool", true},
      {"a.text", std::string("caf\xc3\xa9")},
      {"a.u64", ~uint64_t{0}},
      {"a.i64", std::numeric_limits<int64_t>::min()},
      {"a.f64", 1e300},
      {"a.tokens", std::vector<std::string>{"x", "", "z"}},
      {"a.scores", std::vector<double>{1.5, -2}},
      {"a.flags", std::vector<bool>{true, false}},
      {"a.none", std::vector<int64_t>{}},
  };
  EXPECT_EQ(header->metadata, wanted);
  ASSERT_EQ(header->arrays.size(), 3u);
  EXPECT_EQ(header->arrays[0].name, "weight");
  EXPECT_EQ(header->arrays[0].dims, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(header->arrays[0].layout->plain, DType::kF32);
  EXPECT_EQ(file.Write().substr(header->arrays[0].offset, 48), std::string(48, 'w'));
  EXPECT_EQ(header->arrays[1].layout->type, GgmlType::kQ4_0);
  EXPECT_EQ(header->arrays[1].size_bytes, 72u);
  EXPECT_EQ(file.Write().substr(header->arrays[1].offset, 72), std::string(72, 'q'));
  EXPECT_EQ(header->arrays[2].dims, std::vector<int64_t>{});
}

TEST(GgufHeader, MoreIsAskedForWhereItGoesOn) {
  Gguf file;
  file.Text("name", "x").Array("w", {2}, 0, std::string(8, 'w'));
  const std::string whole = file.Write();
  const size_t header_bytes = whole.size() - 32;
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto code = ParseGgufHeader(whole.substr(0, n), whole.size()).status().code();
    if (n < header_bytes - 31) {
      EXPECT_EQ(code, StatusCode::kOutOfRange) << n;
    }
    EXPECT_EQ(Parse(whole.substr(0, n)).ok(), n + 24 >= whole.size())
        << n;  // 8 of the last 32 are the array's
  }
  EXPECT_EQ(ParseGgufHeader(whole.substr(0, header_bytes), whole.size()).status().code(),
            StatusCode::kOk);
}

TEST(GgufHeader, WhatIsWrongIsRefused) {
  const auto good = [] {
    Gguf file;
    file.Text("name", "x").Array("w", {4}, 0, std::string(16, 'w'));
    return file;
  };
  ASSERT_TRUE(Parse(good().Write()).ok());
  const uint64_t huge = uint64_t{1} << 62;
  const struct {
    const char* what;
    Gguf file;
    StatusCode code = StatusCode::kInvalidArgument;
  } cases[] = {
      {"magic", good().Magic("GGML")},
      {"version 1", good().Version(1)},
      {"version 4", good().Version(4)},
      {"big-endian", good().Version(3u << 24), StatusCode::kUnimplemented},
      {"more arrays than the file has room for", good().ArrayCount(huge)},
      {"more values than the file has room for", good().ValueCount(huge)},
      {"one array more than there is", good().ArrayCount(2)},
      {"a value twice", good().Text("name", "y")},
      {"an array twice", good().Array("w", {4}, 0, std::string(16, 'v'))},
      {"no such type of value", good().Value("v", 13, uint32_t{0})},
      {"a bool of 2", good().Value("v", 7, uint8_t{2})},
      {"nested arrays", good().Value("v", 9, uint32_t{9}).Raw(std::string(8, '\0')),
       StatusCode::kUnimplemented},
      {"a list that is longer than the file", good().Value("v", 9, uint32_t{4}).RawNumber(huge)},
      {"a text that is longer than the file", good().Value("v", 8, huge)},
      {"five axes", good().Array("v", {1, 1, 1, 1, 1}, 0, std::string(4, 'v'))},
      {"elements overflow", good().Array("v", {int64_t{1} << 40, int64_t{1} << 40}, 0, "")},
      {"lengths overflow but for a 0 behind",
       good().Array("v", {int64_t{1} << 40, int64_t{1} << 40, 0}, 0, "")},
      {"lengths overflow but for a 0 before",
       good().Array("v", {0, int64_t{1} << 40, int64_t{1} << 40}, 0, "")},
      {"bytes overflow", good().Array("v", {int64_t{1} << 62}, 28, "")},
      {"a product that wraps to few", good().Array("v", {int64_t{1} << 62, 4, 4}, 0, "")},
      {"a negative axis", good().Array("v", {-4}, 0, "")},
      {"no such element type", good().Array("v", {4}, 40, ""), StatusCode::kUnimplemented},
      {"a code that was taken back", good().Array("v", {32}, 4, ""), StatusCode::kUnimplemented},
      {"half a block", good().Array("v", {48}, 2, std::string(27, 'v'))},
      {"a scalar of blocks", good().Array("v", {}, 2, std::string(18, 'v'))},
      {"beyond the end", good().ArrayAt("v", {4}, 0, 1 << 20)},
      {"an offset that overflows", good().ArrayAt("v", {4}, 0, ~uint64_t{0} - 31)},
      {"not aligned", good().ArrayAt("v", {1}, 0, 4)},
      {"on top of another", good().ArrayAt("v", {1}, 0, 0)},
      {"alignment 0", good().Value("general.alignment", 4, uint32_t{0})},
      {"alignment 24", good().Value("general.alignment", 4, uint32_t{24})},
      {"alignment of 2^31", good().Value("general.alignment", 4, uint32_t{1} << 31)},
      {"alignment as text", good().Text("general.alignment", "32")},
      {"no name", good().Array("", {4}, 0, std::string(16, 'v'))},
  };
  for (const auto& c : cases) EXPECT_EQ(Parse(c.file.Write()).status().code(), c.code) << c.what;
  EXPECT_EQ(Parse("").status().code(), StatusCode::kInvalidArgument);
  // A file that claims to be large says so before anything is read of it.
  Gguf long_text = good().Value("v", 8, uint64_t{1} << 30);
  EXPECT_EQ(ParseGgufHeader(long_text.Write(), uint64_t{1} << 40).status().code(),
            StatusCode::kResourceExhausted);
}

TEST(GgufHeader, ArraysBeginAtTheFilesAlignment) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    Gguf file;
    file.Alignment(alignment).Array("w", {4}, 0, std::string(16, 'w')).Array("v", {1}, 0, "vvvv");
    const std::string bytes = file.Write();
    const auto header = Parse(bytes);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->arrays[1].offset % alignment, 0u);
    EXPECT_EQ(bytes.substr(header->arrays[1].offset, 4), "vvvv");
  }
}

}  // namespace
}  // namespace outboard::files
