// Parses the header of a safetensors file: the location of its arrays. The format is 8 bytes of
// length (little-endian), that many bytes of JSON, then the arrays one after the other, without
// gaps:
//
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"a":
//   "b"}}
//
// Files are untrusted: input is bounded and checked, and every reader interprets it in the same way
// (a duplicate name, a gap, an array past the end are errors). Threads: pure functions.
// Errors: INVALID_ARGUMENT    not such a file; says what is wrong, and of which array
//         RESOURCE_EXHAUSTED  a header of more than kSafetensorsHeaderBytesMax
//         UNIMPLEMENTED       a dtype that tensors here do not have (named)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/dtype.h"

namespace outboard::files {

inline constexpr char kSafetensorsMetadataName[] = "__metadata__";
inline constexpr uint64_t kSafetensorsHeaderBytesMax = uint64_t{100} << 20;

struct SafetensorsArray {
  std::string name;
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;
  uint64_t offset = 0;  // from the first byte after the header
  uint64_t size_bytes = 0;
};

struct SafetensorsHeader {
  uint64_t header_bytes = 0;             // with the 8 of the length: where the arrays begin
  std::vector<SafetensorsArray> arrays;  // by offset, then by name
  std::string metadata;  // the JSON text of the object __metadata__, not parsed; may be empty
};

// Returns how many bytes of a file ParseSafetensorsHeader needs; `first` has at least its first 8.
absl::StatusOr<uint64_t> SafetensorsHeaderBytes(std::string_view first, uint64_t file_bytes);

// `first`: the file's first bytes, at least the whole header.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view first,
                                                         uint64_t file_bytes);

// Returns SafetensorsHeader::metadata for these texts.
std::string WriteSafetensorsMetadata(
    std::span<const std::pair<std::string, std::string>> texts_by_name);

// Returns the first bytes of a file with these arrays in this order; ignores offsets and
// header_bytes. The arrays begin at a multiple of 64.
std::string WriteSafetensorsHeader(const SafetensorsHeader& header);

}  // namespace outboard::files
