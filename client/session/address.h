// How a user spells where the gateway is and which key to use, checked before anything is dialled:
// gRPC would take a missing port for 443 and end the program on a key with a line break in it.
//
// Threads: any; nothing is kept. Messages name the variable or flag, what is wrong with the value
// and, where that can be told, what was meant; never the key.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace outboard::transport {

inline constexpr int kDefaultPort = 6667;

// "host:port", "[IPv6]:port" or "unix:/path". `name` is for the message: "CLOUD_HOST".
// `lowest_port`: 0 for an address to listen at, which may leave the choice to the system.
// Errors: INVALID_ARGUMENT
absl::Status CheckTarget(std::string_view name, std::string_view target, int lowest_port = 1);

// A good target by whose name nothing leaves this machine: a unix socket, localhost, 127.x.x.x,
// [::1].
bool IsOnThisMachine(std::string_view target);

// Empty, or letters, digits and signs of ASCII: it travels in a header.
// Errors: INVALID_ARGUMENT
absl::Status CheckKeyText(std::string_view name, std::string_view key);

}  // namespace outboard::transport
