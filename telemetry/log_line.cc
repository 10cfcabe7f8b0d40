#include "telemetry/log_line.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>

namespace outboard::telemetry {
namespace {

constexpr std::string_view kKeyPrefix = "ob_live_";
constexpr size_t kKeyIdDigits = 16;  // names the key's row, and is no secret
constexpr std::string_view kHidden = "[hidden]";

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool IsKeyCharacter(char c) { return IsWordCharacter(c) || c == '_' || c == '-'; }

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 0;
};

// The code point at the front of `text`; nullopt: its first byte begins none.
std::optional<CodePoint> Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return CodePoint{first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return std::nullopt;
  char32_t value = first & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return std::nullopt;
    value = (value << 6) | (byte(i) & 0x3f);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    return std::nullopt;
  return CodePoint{value, bytes};
}

// Controls, line and paragraph separators, marks without a width of their own and those that
// reorder what a person sees, private and unassigned ends of planes.
bool IsUnseen(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c ||
         (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff0 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe0fff) || (c & 0xfffe) == 0xfffe;
}

void AppendHex(std::string& out, const char* prefix, uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%s%0*x", prefix, digits, value);
  out += text;
}

std::string_view Cut(std::string_view text, size_t* lost) {
  *lost = 0;
  if (text.size() <= kLogValueBytesMax) return text;
  size_t end = kLogValueBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  *lost = text.size() - end;
  return text.substr(0, end);
}

// Calls `good` with each code point that can be seen, `bad` with each other one, `byte` with each
// byte that is none.
template <typename Good, typename Bad, typename Byte>
void Walk(std::string_view text, const Good& good, const Bad& bad, const Byte& byte) {
  while (!text.empty()) {
    const std::optional<CodePoint> c = Decode(text);
    const size_t bytes = c ? c->bytes : 1;
    if (!c)
      byte(static_cast<unsigned char>(text[0]));
    else if (IsUnseen(c->value))
      bad(c->value);
    else
      good(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
}

std::string Stamp(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                static_cast<int>(unix_ms % 1000));
  return text;
}

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

std::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
    case LogLevel::kOff: return "off";
  }
  return "";
}

std::string WithoutSecrets(std::string_view text, std::span<const std::string> secrets) {
  std::string out(text);
  for (const std::string& secret : secrets)
    for (size_t at = 0; (at = out.find(secret, at)) != std::string::npos; at += kHidden.size())
      out.replace(at, secret.size(), kHidden);
  for (size_t at = 0; (at = out.find(kKeyPrefix, at)) != std::string::npos;) {
    at += kKeyPrefix.size();
    size_t id = 0, end = at;
    while (end < out.size() && IsKeyCharacter(out[end])) ++end;
    while (at + id < end && IsWordCharacter(out[at + id])) ++id;
    // Only what has the form of an id stays, and only before a secret.
    const size_t kept = id == kKeyIdDigits ? id : 0;
    if (end == at + kept) continue;
    out.replace(at + kept, end - at - kept, kHidden);
    at += kept + kHidden.size();
  }
  return out;
}

std::string TextValue(std::string_view text) {
  size_t lost = 0;
  std::string out;
  bool quotes = text.empty();
  Walk(
      Cut(text, &lost),
      [&](std::string_view c) {
        const char first = c[0];
        if (first == '"' || first == '\\') out += '\\';
        out += c;
        quotes |= !IsWordCharacter(first) &&
                  std::string_view("_-.:/@+%,#[]").find(first) == std::string_view::npos;
      },
      [&](char32_t c) {
        quotes = true;
        if (c == '\n')
          out += "\\n";
        else if (c == '\t')
          out += "\\t";
        else
          AppendHex(out, "\\u{", static_cast<uint32_t>(c), 1), out += '}';
      },
      [&](unsigned char byte) {
        quotes = true;
        AppendHex(out, "\\x", byte, 2);
      });
  if (lost > 0) {
    out += " ... and " + std::to_string(lost) + " bytes";
    quotes = true;
  }
  return quotes ? "\"" + out + "\"" : out;
}

std::string JsonValue(std::string_view text) {
  size_t lost = 0;
  std::string out = "\"";
  Walk(
      Cut(text, &lost),
      [&](std::string_view c) {
        if (c[0] == '"' || c[0] == '\\') out += '\\';
        out += c;
      },
      [&](char32_t c) {
        if (c > 0xffff) {  // a pair of surrogates
          AppendHex(out, "\\u", static_cast<uint32_t>(0xd800 + ((c - 0x10000) >> 10)), 4);
          AppendHex(out, "\\u", static_cast<uint32_t>(0xdc00 + ((c - 0x10000) & 0x3ff)), 4);
        } else {
          AppendHex(out, "\\u", static_cast<uint32_t>(c), 4);
        }
      },
      [&](unsigned char) { out += "\\ufffd"; });
  if (lost > 0) out += " ... and " + std::to_string(lost) + " bytes";
  return out + "\"";
}

std::string FormatLine(LogFormat format, int64_t unix_ms, LogLevel level, std::string_view event,
                       std::span<const LogField> fields, uint64_t suppressed,
                       std::span<const std::string> secrets) {
  const bool json = format == LogFormat::kJson;
  std::string line;
  const auto add = [&](std::string_view key, std::string_view value) {
    if (json) {
      line += line.empty() ? "{\"" : ",\"";
      line.append(key).append("\":").append(value);
    } else {
      if (!line.empty()) line += ' ';
      line.append(key).append("=").append(value);
    }
  };
  const auto text = [&](std::string_view value) {
    return json ? JsonValue(value) : TextValue(value);
  };
  add("time", text(Stamp(unix_ms)));
  add("level", text(NameOf(level)));
  add("event", text(event));
  for (const LogField& field : fields.first(std::min(fields.size(), kLogFieldsMax))) {
    if (const auto* of = std::get_if<std::string_view>(&field.value); of != nullptr && of->empty())
      continue;
    const std::string value = std::visit(
        [&](const auto& of) -> std::string {
          using T = std::decay_t<decltype(of)>;
          if constexpr (std::is_same_v<T, std::string_view>)
            return text(WithoutSecrets(of, secrets));
          else if constexpr (std::is_same_v<T, bool>)
            return of ? "true" : "false";
          else if constexpr (std::is_same_v<T, double>)
            return of - of == 0 ? NumberText(of) : text(NumberText(of));  // JSON knows no infinity
          else
            return std::to_string(of);
        },
        field.value);
    add(field.key.text(), value);
  }
  if (suppressed > 0) add("suppressed", std::to_string(suppressed));
  if (json) line += '}';
  return line;
}

}  // namespace outboard::telemetry
