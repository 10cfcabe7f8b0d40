#include "wire/tls/fingerprint.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace outboard::tls {
namespace {

constexpr std::string_view kPrefix = "sha256:";

}  // namespace

absl::StatusOr<Fingerprint> Fingerprint::Parse(std::string_view name, std::string_view text) {
  constexpr size_t kTextBytesMax = 128;  // 64 digits with colons between them
  const std::string lower = absl::AsciiStrToLower(std::string(text.substr(0, kTextBytesMax)));
  std::string_view rest = lower;
  Fingerprint fingerprint;
  std::string digits;
  if (rest.starts_with(kPrefix)) {
    for (const char c : rest.substr(kPrefix.size()))
      if (c != ':') digits.push_back(c);
  }
  const bool all_hex = std::all_of(digits.begin(), digits.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c));
  });
  if (digits.size() != 2 * fingerprint.bytes.size() || !all_hex || text.size() > kTextBytesMax)
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(name), " is \"", absl::CHexEscape(std::string(text.substr(0, 100))),
        "\": write sha256: and 64 hex digits, as `outboard key create` prints it"));
  const std::string bytes = absl::HexStringToBytes(digits);
  std::copy(bytes.begin(), bytes.end(), fingerprint.bytes.begin());
  return fingerprint;
}

std::string Fingerprint::ToString() const {
  return absl::StrCat(
      std::string(kPrefix),
      absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

}  // namespace outboard::tls
