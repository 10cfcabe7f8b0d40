// Where a worker takes connections of other workers, as text: "10.0.0.7:4000", "[fd00::7]:4000".
// Workers say it to the gateway, which passes it on: whoever reads one checks it.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::wire {

inline constexpr size_t kDataAddressBytesMax = 64;

// Numbers alone: a name could lead elsewhere by the time that somebody connects. IPv4 addresses
// come as sockaddr_in, others as sockaddr_in6.
// Errors: INVALID_ARGUMENT  no address and port, an address of no host, or a port below `port_min`
absl::StatusOr<sockaddr_storage> ParseDataAddress(const std::string& text, int port_min = 1);
socklen_t LengthOf(const sockaddr_storage& address);
std::string DataAddressText(const sockaddr_storage& address);

}  // namespace outboard::wire
