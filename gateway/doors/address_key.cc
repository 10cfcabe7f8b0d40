#include "gateway/doors/address_key.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/accounts/address_range.h"

namespace outboard::gateway {

namespace {

AddressKey OfV4(const uint8_t* bytes) {
  if (bytes[0] == 127) return {.is_local = true};
  uint64_t bits = 0;
  for (int i = 0; i < 4; ++i) bits = bits << 8 | bytes[i];
  return {.bits = bits};
}

AddressKey OfV6(const uint8_t* bytes) {
  in6_addr address;
  std::memcpy(&address, bytes, sizeof address);
  if (IN6_IS_ADDR_V4MAPPED(&address)) return OfV4(bytes + 12);
  if (IN6_IS_ADDR_LOOPBACK(&address)) return {.is_local = true};
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | bytes[i];
  return {.bits = bits, .is_v6 = true};
}

}  // namespace

std::string AddressKey::ToString() const {
  if (is_local) return "this machine";
  if (!is_v6) {
    return absl::StrCat(bits >> 24 & 255, ".", bits >> 16 & 255, ".", bits >> 8 & 255, ".",
                        bits & 255);
  }
  std::array<uint8_t, 16> bytes{};
  for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = bits >> (56 - 8 * i) & 255;
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return absl::StrCat(text, "/64");
}

AddressKey AddressKeyOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    return OfV4(reinterpret_cast<const uint8_t*>(&v4.sin_addr));
  }
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &address, sizeof v6);
    return OfV6(v6.sin6_addr.s6_addr);
  }
  return {.is_local = true};
}

AddressKey AddressKeyOfPeer(std::string_view peer) {
  // A peer without an address of its own has both loopback addresses, and one that gRPC names in
  // another way has none. Neither came from another machine.
  const std::vector<IpAddress> addresses = AddressesOfPeer(peer);
  if (addresses.size() != 1) return {.is_local = true};
  const IpAddress& address = addresses[0];
  return address.bits == 32 ? OfV4(address.bytes.data()) : OfV6(address.bytes.data());
}

}  // namespace outboard::gateway
