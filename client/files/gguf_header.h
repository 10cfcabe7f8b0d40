// Parses the header of a GGUF file: the model's metadata, and the location of its arrays. The
// format is "GGUF", a version (2 or 3), two counts, that number of name-value pairs and of array
// descriptions, and then, from the next multiple of the alignment, the arrays themselves, each
// aligned. Numbers are little-endian.
//
// Files are untrusted: input is bounded and checked, and every reader interprets it in the same way
// (a duplicate name, arrays that overlap or reach past the end are errors). Threads: pure
// functions.
// Errors: INVALID_ARGUMENT    not such a file; says what is wrong, and of which array or value
//         OUT_OF_RANGE        the header is longer than the given part of the file; the only error
//                             that more bytes can fix
//         RESOURCE_EXHAUSTED  a header of more than kGgufHeaderBytesMax
//         UNIMPLEMENTED       an element type that is not in ggml_type.h; lists of lists; a
//                             big-endian file
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/files/ggml_type.h"

namespace outboard::files {

// Vocabularies are part of a header: the largest that models have take some 20 MiB.
inline constexpr uint64_t kGgufHeaderBytesMax = uint64_t{128} << 20;

// Unsigned integers of 64 bits are uint64_t, all others int64_t.
using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<uint64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

struct GgufArray {
  std::string name;
  const GgmlLayout* layout = nullptr;
  std::vector<int64_t>
      dims;             // the last axis is the contiguous one; the file lists the axes in reverse
  uint64_t offset = 0;  // in the file
  uint64_t size_bytes = 0;
};

struct GgufHeader {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<GgufArray> arrays;  // in the file's order
};

// `first`: the file's first bytes, as many as the caller has read.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::string_view first, uint64_t file_bytes);

}  // namespace outboard::files
