// A handshake by hand: what gRPC does not say about a connection that it did not get, and whether a
// port that speaks TLS is still served.
// Threads: any; blocks until it knows or the time is over. Sends nothing but the handshake.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "wire/tls/verify.h"

namespace outboard::tls {

enum class Speaks {
  kNothing,  // no connection, or silence
  kTls,
  kOther,  // something else, HTTP/2 without TLS for example
};

struct Handshake {
  Speaks speaks = Speaks::kNothing;
  std::vector<Certificate> chain;  // of kTls
  std::string alert;               // of a server that ended the handshake: its reason
};

// `target`: "host:port", the host as users write it ([IPv6] in brackets).
Handshake ShakeHands(const std::string& target, std::chrono::milliseconds within);

// On a socket that is connected; stays its caller's.
Handshake ShakeHandsOn(int fd, const std::string& host, std::chrono::milliseconds within);

// "box" of "box:6667", "::1" of "[::1]:6667".
std::string HostOf(const std::string& target);

}  // namespace outboard::tls
