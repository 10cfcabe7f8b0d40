// The header of a GGUF file: what it says of a model, and which arrays lie where. A file is "GGUF",
// a version (2 or 3), two counts, so many pairs of a name and a value, so many descriptions of
// arrays, and from the next multiple of the alignment on the arrays themselves, each at a multiple
// of it. Numbers are little-endian.
//
// Files come from anywhere: what is read is bounded and checked, and means the same to every reader
// (a name twice, arrays that overlap or reach beyond the end are errors). Threads: pure.
// Errors: INVALID_ARGUMENT    not such a file; says what is wrong, and of which array or value
//         OUT_OF_RANGE        the header is longer than what is given of the file; only then is
//                             more worth a try
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

namespace outboard::blobs {

// Vocabularies are part of a header: the largest that models have take some 20 MiB.
inline constexpr uint64_t kGgufHeaderBytesMax = uint64_t{128} << 20;

// Integers of 64 bits without a sign are uint64_t, all others int64_t.
using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<uint64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

struct GgufArray {
  std::string name;
  const GgmlLayout* layout = nullptr;
  std::vector<int64_t>
      dims;             // the last is the one whose elements are neighbours; the file has it first
  uint64_t offset = 0;  // in the file
  uint64_t size_bytes = 0;
};

struct GgufHeader {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<GgufArray> arrays;  // in the file's order
};

// `first`: the file's first bytes, as many as the caller has.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::string_view first, uint64_t file_bytes);

}  // namespace outboard::blobs
