// Text to tokens.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/gpu/text/parser.h"

namespace outboard::ptx {

struct Token {
  std::string_view text;
  int line = 0;
};

bool StartsWord(char c);
absl::Status ErrorAt(int line, std::string_view what);
absl::StatusOr<std::vector<Token>> ReadTokens(std::string_view text);
// A number in one of the forms of PTX: 12, 0x1f, 0f3F800000, 0d..., 1.5. False if it is none.
bool ReadNumber(std::string_view word, bool negative, Operand* out);

}  // namespace outboard::ptx
