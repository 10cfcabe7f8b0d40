#include "base/host_port.h"

#include <charconv>

namespace outboard {

std::optional<HostPort> SplitHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find_first_of(":[]") != std::string_view::npos)
    return std::nullopt;
  HostPort place{.host = std::string(host)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
  if (host.empty() || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return place;
}

std::string ToString(const HostPort& place) {
  const bool is_ipv6 = place.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + place.host + "]" : place.host) + ":" + std::to_string(place.port);
}

}  // namespace outboard
