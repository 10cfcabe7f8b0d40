// JSON that remembers its lines, so that whoever wrote a file by hand is told where it is wrong.
//
// Bounded: kJsonBytesMax bytes, kJsonDepthMax levels. Strings may hold printable ASCII and the
// escapes \" \\ \/; a key may occur once in an object. Pure. Threads: any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::gateway {

inline constexpr size_t kJsonBytesMax = 1 << 20;
inline constexpr int kJsonDepthMax = 8;

struct LinedJson {
  enum class Kind { kObject, kArray, kString, kNumber, kWord };
  Kind kind = Kind::kWord;
  int line = 1;                // where it begins
  std::string text;            // of a string its content; of a number or word as it is written
  std::vector<LinedJson> items;                            // of an array
  std::vector<std::pair<std::string, LinedJson>> members;  // of an object, as written

  const LinedJson* Find(std::string_view key) const;  // nullptr: there is none
};

// INVALID_ARGUMENT "line N: ...".
absl::Status AtLine(int line, std::string_view what);

// Errors: INVALID_ARGUMENT  it is not such JSON; names the line
absl::StatusOr<LinedJson> ParseLinedJson(std::string_view text);

}  // namespace outboard::gateway
