#include "wire/data_address.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace outboard::wire {

absl::StatusOr<sockaddr_storage> ParseDataAddress(const std::string& text, int port_min) {
  const auto wrong = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text.substr(0, kDataAddressBytesMax), "\" is no data address: ", why,
                     "; write 10.0.0.7:4000 or [fd00::7]:4000"));
  };
  if (text.size() > kDataAddressBytesMax) return wrong("too long");
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos) return wrong("it has no port");
  const std::string digits = text.substr(colon + 1);
  if (digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &port) || port < port_min || port > 65535)
    return wrong("its port is no number up to 65535");
  std::string host = text.substr(0, colon);
  sockaddr_storage address{};
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) != 1) return wrong("not numbers");
    if (IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) || IN6_IS_ADDR_MULTICAST(&six.sin6_addr))
      return wrong("no single host has it");
    return address;
  }
  auto& four = reinterpret_cast<sockaddr_in&>(address);
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) return wrong("not numbers");
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
