// Limits of certificates and of what they are made for. wire/tls reads them before anybody has
// authenticated, so each is bounded before it is parsed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace outboard::tls {

inline constexpr size_t kPemBytesMax = 1 << 20;  // Debian's bundle of all system roots has 220 kB
inline constexpr size_t kChainBytesMax = 64 << 10;   // of a peer: ten certificates of RSA keys
inline constexpr size_t kChainLengthMax = 10;        // OpenSSL's own limit for what a peer sends
inline constexpr size_t kRequestBytesMax = 4 << 10;  // a request with a P-256 key has 300 bytes
inline constexpr size_t kNamesMax = 64;       // of one certificate: all addresses of a machine
inline constexpr size_t kNameBytesMax = 253;  // the longest name of DNS

// What an old clock may be behind without finding a new certificate "not valid yet".
inline constexpr int64_t kClockSkewS = 300;
inline constexpr int64_t kAuthorityLifetimeS = 10LL * 365 * 86'400;
// Short, since nobody has to do anything: whoever runs the server renews it.
inline constexpr int64_t kServerLifetimeS = 90LL * 86'400;
inline constexpr int64_t kWorkerLifetimeS = 86'400;

}  // namespace outboard::tls
