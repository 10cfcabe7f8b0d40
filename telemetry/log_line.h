// How an event becomes a line: escaping, cutting, and the two formats. Pure; telemetry/log.h says
// what for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/log.h"

namespace outboard::telemetry {

inline constexpr size_t kLogValueBytesMax = 512;  // of one value; an error message fits
inline constexpr size_t kLogFieldsMax = 24;

// `text` with what must not be seen replaced: API keys but for their ids, and `secrets`.
std::string WithoutSecrets(std::string_view text, std::span<const std::string> secrets);

// `text` cut to kLogValueBytesMax and escaped: printable, valid UTF-8, of one line. With quotes if
// it would else be read as something else.
std::string TextValue(std::string_view text);
// The same as a JSON string.
std::string JsonValue(std::string_view text);

// The line, without a line break. `suppressed`: events of this name that were not written before
// it.
std::string FormatLine(LogFormat format, int64_t unix_ms, LogLevel level, std::string_view event,
                       std::span<const LogField> fields, uint64_t suppressed,
                       std::span<const std::string> secrets);

std::string_view NameOf(LogLevel level);

}  // namespace outboard::telemetry
