// Fetches a file from a boot server by its digest (cli/node/boot_server.h): HTTP/1.1, in parts
// where a connection ends before its end. What comes is believed for its digest alone. Not in
// builds without Boost.Beast (OUTBOARD_VIZ).
//
// Threads: any. Blocks; reads the network and writes the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace outboard::worker {

// The most that a file with drivers may have.
inline constexpr uint64_t kDriverBytesMax = uint64_t{4} << 30;

struct FetchOptions {
  std::string server;  // HOST:PORT
  std::string digest;  // "sha256:" and 64 hex digits
  uint64_t bytes = 0;  // that it has
  std::string path;    // where it is written; nothing is there unless the call succeeds
  int tries_max = 0;   // connections in a row that bring nothing new; 0: any number, for ever
  double pause_first_s = 1, pause_most_s = 60;  // between those: base/growing_pause.h
  double patience_s = 20;  // in which nothing comes, and in which a name is to be looked up
  // Of one connection: a server that sends a byte now and then is asked anew.
  double connection_within_s = 1800;
  std::stop_token stop = {};  // ends it at once, as a server that does not answer
  // Called before each pause, with why.
  std::function<void(const absl::Status& why)> on_pause = [](const absl::Status&) {};
  // The addresses of a name, on a thread that may outlive the fetch; empty function: the system's.
  std::function<std::vector<std::string>(const std::string& host)> look_up = {};
};

// Goes on for ever while the answer is "not now": no address, no connection, one that ends or
// stays silent, a status of 5xx, 408, 425 or 429. Ends at once where it is refused.
// Errors: INVALID_ARGUMENT    no such address or digest, or too large
//         UNAVAILABLE         `stop`, or the last reason after `tries_max`
//         NOT_FOUND           the server has no such file: any other status
//         RESOURCE_EXHAUSTED  it cannot be written
//         DATA_LOSS           what came is not what was asked for, or has another digest: expected
//                             and found
absl::Status FetchByDigest(const FetchOptions& options);

}  // namespace outboard::worker
