// Headers of safetensors files: what is read back is what was written, and a file that two readers
// could understand differently is refused.
#include "client/files/safetensors_header.h"

#include <gtest/gtest.h>

namespace outboard::files {
namespace {

using absl::StatusCode;

std::string WithLength(const std::string& json) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return bytes + json;
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& json, uint64_t data_bytes) {
  const std::string bytes = WithLength(json);
  return ParseSafetensorsHeader(bytes, bytes.size() + data_bytes);
}

TEST(SafetensorsHeader, IsReadAsItStands) {
  const auto header = Parse(
      " {\"b\\u00e9\\n\" : {\"shape\":[2,3], \"dtype\":\"F32\",\"data_offsets\":[2,26]},\n"
      "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]},"
      "\"__metadata__\": {\"format\":\"pt\"} ,"
      "\"none\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[26,26]}}   ",
      26);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->arrays.size(), 3u);
  EXPECT_EQ(header->arrays[0].name, "a");
  EXPECT_EQ(header->arrays[0].dtype, DType::kBF16);
  EXPECT_EQ(header->arrays[1].name, "b\xc3\xa9\n");
  EXPECT_EQ(header->arrays[1].dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(header->arrays[1].offset, 2u);
  EXPECT_EQ(header->arrays[2].size_bytes, 0u);
  EXPECT_NE(header->metadata.find("\"format\":\"pt\""), std::string::npos);
}

TEST(SafetensorsHeader, IsWrittenAndReadBack) {
  SafetensorsHeader header;
  uint64_t offset = 0;
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    const uint64_t bytes = 6 * static_cast<uint64_t>(ByteWidth(dtype));
    header.arrays.push_back(
        {"\"\\\x01 " + std::string(outboard::Name(dtype)), dtype, {2, 3}, offset, bytes});
    offset += bytes;
  }
  header.metadata = "{\"k\":\"v\"}";
  const std::string bytes = WriteSafetensorsHeader(header);
  EXPECT_EQ(bytes.size() % 64, 0u);
  const auto read = ParseSafetensorsHeader(bytes, bytes.size() + offset);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->header_bytes, bytes.size());
  EXPECT_EQ(read->metadata, header.metadata);
  ASSERT_EQ(read->arrays.size(), header.arrays.size());
  for (size_t i = 0; i < header.arrays.size(); ++i) {
    EXPECT_EQ(read->arrays[i].name, header.arrays[i].name);
    EXPECT_EQ(read->arrays[i].dtype, header.arrays[i].dtype);
    EXPECT_EQ(read->arrays[i].dims, header.arrays[i].dims);
    EXPECT_EQ(read->arrays[i].offset, header.arrays[i].offset);
  }
}

TEST(SafetensorsHeader, WhatIsWrongIsRefused) {
  const std::string good = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  ASSERT_TRUE(Parse(good, 4).ok());
  const struct {
    std::string json;
    uint64_t data_bytes;
    StatusCode code;
  } cases[] = {
      {good, 3, StatusCode::kInvalidArgument},
      {good, 5, StatusCode::kInvalidArgument},
      {good + "x", 4, StatusCode::kInvalidArgument},
      {"", 0, StatusCode::kInvalidArgument},
      {"[]", 0, StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]}}", 5,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"x\":1}}", 4,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"C64\",\"shape\":[4],\"data_offsets\":[0,32]}}", 32,
       StatusCode::kUnimplemented},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]}}", 0,
       StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
       4, StatusCode::kInvalidArgument},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}",
       4, StatusCode::kInvalidArgument},
      {"{\"__metadata__\":{\"a\":1}}", 0, StatusCode::kInvalidArgument},
      {"{\"\\ud800\":{}}", 0, StatusCode::kInvalidArgument},
      {"{\"a", 0, StatusCode::kInvalidArgument},
  };
  for (const auto& c : cases)
    EXPECT_EQ(Parse(c.json, c.data_bytes).status().code(), c.code) << c.json;
  // Cut off anywhere, and lengths that are none.
  const std::string whole = WithLength(good);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ParseSafetensorsHeader(whole.substr(0, n), n).ok()) << n;
    EXPECT_FALSE(ParseSafetensorsHeader(whole.substr(0, n), whole.size() + 4).ok()) << n;
  }
  const std::string huge(8, '\xff');
  EXPECT_FALSE(SafetensorsHeaderBytes(huge, 100).ok());
  EXPECT_EQ(SafetensorsHeaderBytes(huge.substr(0, 4) + std::string(4, '\0'), uint64_t{1} << 40)
                .status()
                .code(),
            StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace outboard::files
