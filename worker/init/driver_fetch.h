// Fetches a file from a boot server by its digest (cli/node/boot_server.h): HTTP/1.1, in parts
// where a connection ends before its end. What comes is believed for its digest alone. Not in
// builds without Boost.Beast (OUTBOARD_VIZ).
//
// Threads: any. Blocks; reads the network and writes the disk.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/status/status.h"

namespace outboard::worker {

// The most that a file with drivers may have.
inline constexpr uint64_t kDriverBytesMax = uint64_t{4} << 30;

struct FetchOptions {
  std::string server;  // HOST:PORT
  std::string digest;  // "sha256:" and 64 hex digits
  uint64_t bytes = 0;  // that it has
  std::string path;    // where it is written; nothing is there unless the call succeeds
  int tries_max = 5;   // connections in a row that bring nothing new
  double patience_s = 20;  // in which nothing comes
  double within_s = 1800;  // all of it: a server that sends a byte now and then holds up nobody
  std::stop_token stop = {};  // ends it at once, as a server that does not answer
};

// Errors: INVALID_ARGUMENT  no such address or digest, or too large
//         UNAVAILABLE       the server does not answer, or has no such file
//         DATA_LOSS         what came has another digest: expected and found
absl::Status FetchByDigest(const FetchOptions& options);

}  // namespace outboard::worker
