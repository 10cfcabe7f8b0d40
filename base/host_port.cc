#include "base/host_port.h"

#include <charconv>

namespace outboard {

// Of 65535.
constexpr size_t kPortDigitsMax = 5;

std::optional<HostPort> SplitHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool is_ipv6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (is_ipv6) host = host.substr(1, host.size() - 2);
  if (host.find_first_of(is_ipv6 ? "[]" : ":[]") != std::string_view::npos) return std::nullopt;
  HostPort place{.host = std::string(host)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
  if (host.empty() || digits.size() > kPortDigitsMax || error != std::errc() ||
      end != digits.data() + digits.size())
    return std::nullopt;
  return place;
}

std::string WhyNoHostPort(std::string_view text, int port_min) {
  constexpr char kBrackets[] = "brackets stand around an IPv6 address alone, as in [::1]:6667";
  std::string_view host = text;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return "a ] is missing";
    host = text.substr(1, end - 1);
    const std::string_view behind = text.substr(end + 1);
    if (host.find('[') != std::string_view::npos) return kBrackets;
    if (behind.empty()) return "it has no port";
    if (behind.front() != ':') return "its port comes right behind the ], as in [::1]:6667";
  } else {
    const size_t colon = text.find(':');
    if (colon != text.rfind(':')) return "an IPv6 address is written in brackets, as in [::1]:6667";
    host = text.substr(0, colon);
    if (host.find_first_of("[]") != std::string_view::npos) return kBrackets;
    if (colon == std::string_view::npos) return "it has no port";
  }
  if (host.empty()) return "it has no host";
  return "its port is no number from " + std::to_string(port_min) + " to 65535";
}

std::string ToString(const HostPort& place) {
  const bool is_ipv6 = place.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + place.host + "]" : place.host) + ":" + std::to_string(place.port);
}

}  // namespace outboard
