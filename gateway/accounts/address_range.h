// Ranges of IP addresses, as API keys name where they may be used: "10.0.0.0/8", "fd00::/8", or one
// address. IPv4 and IPv6 are separate: no range of one holds an address of the other. An IPv4
// address written as IPv6 (::ffff:10.0.0.1) is IPv4.
//
// Threads: values, without state of their own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::gateway {

struct IpAddress {
  int bits = 32;                       // 32 of IPv4, 128 of IPv6
  std::array<uint8_t, 16> bytes = {};  // in network order; of IPv4 the first four
  bool operator==(const IpAddress&) const = default;
};

class AddressRange {
 public:
  // Errors: INVALID_ARGUMENT  not an address or range; or bits are set behind the prefix, which may
  //                           be a slip: 10.0.0.5/8
  static absl::StatusOr<AddressRange> Parse(std::string_view text);

  bool Contains(const IpAddress& address) const;
  bool Covers(const AddressRange& other) const;
  std::string ToString() const;  // Parse reads it back

  bool operator==(const AddressRange&) const = default;

 private:
  IpAddress first_;
  int prefix_bits_ = 0;
};

// Returns the address of a gRPC peer ("ipv4:10.0.0.1:6667"). A peer on a unix socket or in this
// process has both loopback addresses. Returns none for any other name, so that it is in no range.
std::vector<IpAddress> AddressesOfPeer(std::string_view peer);

// True if a range contains one of the addresses.
bool AnyContains(const std::vector<AddressRange>& ranges, const std::vector<IpAddress>& addresses);

}  // namespace outboard::gateway
