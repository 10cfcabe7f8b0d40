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
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find_first_of(":[]") != std::string_view::npos)
    return std::nullopt;
  HostPort place{.host = std::string(host)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), place.port);
  if (host.empty() || digits.size() > kPortDigitsMax || error != std::errc() ||
      end != digits.data() + digits.size())
    return std::nullopt;
  return place;
}

const char* WhyNoHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return "it has no port";
  const std::string_view host = text.substr(0, colon);
  if (host.empty()) return "it has no host";
  // What is wrong with the host, or with the port if any would do with it.
  if (SplitHostPort(std::string(host) + ":0").has_value())
    return "its port is no number from 0 to 65535";
  return host.find(':') != std::string_view::npos
             ? "an IPv6 address is written in brackets, as in [::1]:80"
             : "its host has a bracket too many or too few";
}

std::string ToString(const HostPort& place) {
  const bool is_ipv6 = place.host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + place.host + "]" : place.host) + ":" + std::to_string(place.port);
}

}  // namespace outboard
