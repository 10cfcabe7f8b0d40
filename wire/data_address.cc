#include "wire/data_address.h"

#include <arpa/inet.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace outboard::wire {

absl::StatusOr<sockaddr_storage> ParseDataAddress(const std::string& text, int port_min) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text.substr(0, kDataAddressBytesMax), "\" is no data address: ", why,
                     "; write 10.0.0.7:4000 or [fd00::7]:4000"));
  };
  if (text.size() > kDataAddressBytesMax) return wrong("too long");
  const std::optional<HostPort> place = SplitHostPort(text);
  if (!place.has_value() || place->port < port_min) return wrong(WhyNoHostPort(text, port_min));
  sockaddr_storage address{};
  if (text.starts_with('[')) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(place->port);
    if (inet_pton(AF_INET6, place->host.c_str(), &six.sin6_addr) != 1) return wrong("not numbers");
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) || IN6_IS_ADDR_MULTICAST(&six.sin6_addr))
      return wrong("no single host has it");
    return address;
  }
  auto& four = reinterpret_cast<sockaddr_in&>(address);
  four.sin_family = AF_INET;
  four.sin_port = htons(place->port);
  if (inet_pton(AF_INET, place->host.c_str(), &four.sin_addr) != 1) return wrong("not numbers");
  const uint32_t bits = ntohl(four.sin_addr.s_addr);
  if (bits == INADDR_ANY || bits == INADDR_BROADCAST || IN_MULTICAST(bits))
    return wrong("no single host has it");
  return address;
}

socklen_t LengthOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string DataAddressText(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
    return absl::StrCat("[", host, "]:", ntohs(six.sin6_port));
  }
  const auto& four = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
  return absl::StrCat(host, ":", ntohs(four.sin_port));
}

}  // namespace outboard::wire
