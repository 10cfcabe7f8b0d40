#include "base/printable.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace outboard {

namespace {

bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

}  // namespace

std::string Printable(std::string_view text, size_t bytes_max) {
  std::string out(text.substr(0, bytes_max));
  std::replace_if(out.begin(), out.end(), [](char c) { return !IsPrintable(c); }, '?');
  return out;
}

std::string PrintableLines(std::string_view text, size_t bytes_max) {
  std::string out(text.substr(0, bytes_max));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !IsPrintable(c) && c != '\n'; }, '?');
  return out;
}

std::string Escaped(std::string_view line) {
  std::string out;
  for (const char c : line) {
    if (IsPrintable(c) || c == '\t')
      out += c;
    else
      absl::StrAppend(&out, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return out;
}

}  // namespace outboard
