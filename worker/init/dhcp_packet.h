// DHCP messages (RFC 2131, RFC 2132) as bytes: what a client sends, and what it takes from an
// answer. Whatever is in an answer came from the network and is bounded here.
//
// Threads: any; pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::worker {

using MacAddress = std::array<uint8_t, 6>;
using Ipv4 = uint32_t;  // in the order of the host; 0: none

std::string ToString(Ipv4 address);  // "10.0.2.15"

enum class DhcpType : uint8_t {
  kDiscover = 1,
  kOffer = 2,
  kRequest = 3,
  kAck = 5,
  kNak = 6,
};

struct DhcpQuestion {
  DhcpType type = DhcpType::kDiscover;
  uint32_t transaction = 0;
  MacAddress mac{};
  uint16_t seconds = 0;  // since the client began
  Ipv4 client = 0;       // the address that it has, where it renews
  Ipv4 requested = 0;    // of an offer
  Ipv4 server = 0;       // of that offer
};

// 300 bytes at least, as BOOTP relays want.
std::string Encode(const DhcpQuestion& question);

struct DhcpAnswer {
  DhcpType type = DhcpType::kOffer;
  Ipv4 address = 0;
  int prefix = 24;
  Ipv4 router = 0, server = 0;
  std::vector<Ipv4> dns;  // three at most
  uint32_t lease_s = 0;   // at least kLeaseLeastS
  int mtu = 0;            // 0: not said
};

inline constexpr uint32_t kLeaseLeastS = 60;

// Errors: INVALID_ARGUMENT  no answer to this client in this transaction, or one without sense
absl::StatusOr<DhcpAnswer> DecodeDhcp(std::string_view bytes, uint32_t transaction,
                                      const MacAddress& mac);

}  // namespace outboard::worker
