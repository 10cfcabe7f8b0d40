// By what peers are counted: an IPv4 address, or the /64 of an IPv6 address, since whoever has one
// address of it has them all. Peers on this machine are one kind of their own: behind a proxy or
// tunnel everybody comes from here, so they are counted, but no limit of one address holds for
// them.
//
// Threads: values.
#pragma once

#include <sys/socket.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace outboard::gateway {

struct AddressKey {
  // An IPv4 address in the low 32 bits, or the upper 64 of an IPv6 address; 0 of this machine.
  uint64_t bits = 0;
  bool is_v6 = false;
  bool is_local = false;

  auto operator<=>(const AddressKey&) const = default;
  std::string ToString() const;  // "192.0.2.7", "2001:db8:1:2::/64", "this machine"
};

AddressKey AddressKeyOf(const sockaddr_storage& address);
// Of a gRPC peer ("ipv4:192.0.2.7:6667"). What has no address, as a unix socket, is local.
AddressKey AddressKeyOfPeer(std::string_view peer);

}  // namespace outboard::gateway
