#include "client/session/address.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace outboard::session {

namespace {

constexpr size_t kTargetBytesMax = 512;

absl::Status Wrong(std::string_view name, std::string_view target, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(name), " is \"", absl::CHexEscape(std::string(target)), "\": ", what));
}

}  // namespace

absl::Status CheckTarget(std::string_view name, std::string_view target, int lowest_port) {
  if (target.size() > kTargetBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(name), " has ", target.size(), " bytes; limit ", kTargetBytesMax));
  }
  if (target.empty()) return Wrong(name, target, "write HOST:PORT or unix:/path");
  if (std::any_of(target.begin(), target.end(), [](char c) { return c <= ' ' || c > '~'; }))
    return Wrong(name, target, "it holds a space or a character that is not ASCII");
  if (target.starts_with("unix:")) {
    return target.size() > 5 ? absl::OkStatus()
                             : Wrong(name, target, "a path is missing after unix:");
  }
  if (target.find("/") != std::string_view::npos)
    return Wrong(name, target, "write HOST:PORT, without a scheme or a path");
  const std::optional<HostPort> place = SplitHostPort(target);
  if (!place.has_value() || place->port < lowest_port) {
    const std::string with_port = absl::StrCat(std::string(target), ":", kDefaultPort);
    const bool lacks_port = !place.has_value() && SplitHostPort(with_port).has_value();
    return Wrong(name, target,
                 absl::StrCat(WhyNoHostPort(target, lowest_port),
                              lacks_port ? absl::StrCat("; did you mean ", with_port, "?") : ""));
  }
  return absl::OkStatus();
}

bool IsOnThisMachine(std::string_view target) {
  if (target.starts_with("unix:")) return true;
  const std::optional<HostPort> place = SplitHostPort(target);
  if (!place.has_value()) return false;
  const std::string& host = place->host;
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

absl::Status CheckKeyText(std::string_view name, std::string_view key) {
  const auto bad = std::find_if(key.begin(), key.end(), [](char c) { return c <= ' ' || c > '~'; });
  if (bad == key.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(name),
                   " holds a space, a line break or a character that is not "
                   "ASCII, at byte ",
                   bad - key.begin() + 1, " of ", key.size()));
}

}  // namespace outboard::session
