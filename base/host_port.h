// HOST:PORT, taken apart and put together. A host that is an IPv6 address is written in brackets,
// [::1]:80, and is without them in HostPort.
//
// Threads: any; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outboard {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// Nothing: it is no HOST:PORT. Port 0, where the system chooses, is one. A port has at most five
// digits.
std::optional<HostPort> SplitHostPort(std::string_view text);
// Why SplitHostPort gives nothing for `text`, or a port below `port_min`, in words that follow a
// colon.
std::string WhyNoHostPort(std::string_view text, int port_min = 0);
std::string ToString(const HostPort& place);

}  // namespace outboard
