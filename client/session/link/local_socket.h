// The unix socket beside a gateway's port, for programs on the gateway's own machine: a round trip
// by it takes half as long as by TCP on loopback.
#pragma once

#include <optional>
#include <string>

namespace outboard::transport {

// What gRPC dials instead of `target`, which is as CheckTarget allows it; nullopt where `target` is
// not this machine, or nobody listens beside its port. A socket's name can be taken by anybody, so
// it is used only where its owner is the user that listens at the port: a key goes to nobody to
// whom it would not have gone anyway. Makes one connection and reads /proc/net; never blocks long.
std::optional<std::string> LocalSocketOf(const std::string& target);

}  // namespace outboard::transport
