// Finds the unix socket next to a gateway's port, for programs on the gateway's machine: its round
// trip takes half as long as TCP on loopback.
#pragma once

#include <optional>
#include <string>

namespace outboard::session {

// Returns the address that gRPC should use instead of `target`, which must pass CheckTarget;
// nullopt if `target` is not this machine or no such socket is served. Any user can create a socket
// of that name, so it is used only if its owner is the user that listens at the port: the key is
// never sent to a process that would not have received it otherwise. Makes one connection and reads
// /proc/net; never blocks long.
std::optional<std::string> LocalSocketOf(const std::string& target);

}  // namespace outboard::session
