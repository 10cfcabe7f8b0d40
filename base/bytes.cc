#include "base/bytes.h"

#include <cctype>
#include <charconv>
#include <string>
#include <system_error>

namespace outboard {

std::optional<uint64_t> ParseBytes(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || number < 0) return std::nullopt;
  std::string unit;
  for (const char* c = at; c < end; ++c)
    if (*c != ' ' || !unit.empty())
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  if (unit.ends_with('b')) unit.pop_back();
  const bool binary = unit.ends_with('i');
  if (binary) unit.pop_back();
  const std::string_view prefixes = "kmgtpe";
  if (unit.size() > 1 || (binary && unit.empty())) return std::nullopt;
  if (!unit.empty()) {
    const size_t power = prefixes.find(unit);
    if (power == std::string_view::npos) return std::nullopt;
    for (size_t i = 0; i <= power; ++i) number *= binary ? 1024 : 1000;
  }
  if (!(number < 0x1p63)) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace outboard
