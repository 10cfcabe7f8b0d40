// Checks the gateway's address and the key as a user writes them, before connecting: gRPC would
// take a missing port for 443 and abort the program on a key that contains a line break.
//
// Threads: any; stateless. Messages name the variable or flag, the problem with the value and, if
// it can be guessed, the intended value; never the key.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace outboard::session {

inline constexpr int kDefaultPort = 6667;

// Accepts "host:port", "[IPv6]:port" or "unix:/path". `name` is for the message: "CLOUD_HOST".
// `lowest_port`: 0 for an address to listen at, where the system may choose the port.
// Errors: INVALID_ARGUMENT
absl::Status CheckTarget(std::string_view name, std::string_view target, int lowest_port = 1);

// True if connections to a valid target stay on this machine: a unix socket, localhost, 127.x.x.x,
// [::1].
bool IsOnThisMachine(std::string_view target);

// Accepts an empty key, or one of printable ASCII without spaces, since it is sent in a header.
// Errors: INVALID_ARGUMENT
absl::Status CheckKeyText(std::string_view name, std::string_view key);

}  // namespace outboard::session
