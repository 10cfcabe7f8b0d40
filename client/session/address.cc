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
  size_t host_end = target.rfind(':');
  if (target.front() == '[') {
    const size_t bracket = target.find(']');
    if (bracket == std::string_view::npos) return Wrong(name, target, "a ] is missing");
    if (bracket + 1 == target.size()) {
      host_end = std::string_view::npos;
    } else if (target[bracket + 1] != ':') {
      return Wrong(name, target, "the port comes right behind the ], as in [::1]:6667");
    } else {
      host_end = bracket + 1;
    }
  } else if (std::count(target.begin(), target.end(), ':') > 1) {
    return Wrong(name, target, "an IPv6 address is written in brackets, [::1]:6667");
  }
  if (host_end == std::string_view::npos) {
    return Wrong(name, target,
                 absl::StrCat("a port is missing; did you mean ", std::string(target), ":",
                              kDefaultPort, "?"));
  }
  const bool is_bracketed = target.front() == '[';
  const std::string_view host =
      is_bracketed ? target.substr(1, host_end - 2) : target.substr(0, host_end);
  if (host.empty()) return Wrong(name, target, "a host is missing before the port");
  if (host.find_first_of(is_bracketed ? "[]" : ":[]") != std::string_view::npos)
    return Wrong(name, target, "brackets stand around an IPv6 address alone, as in [::1]:6667");
  const std::optional<HostPort> place = SplitHostPort(target);
  if (!place.has_value() || place->port < lowest_port) {
    return Wrong(name, target,
                 absl::StrCat("the port is a number from ", lowest_port, " to 65535"));
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
