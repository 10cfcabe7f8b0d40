// What a worker shows each time that it joins a gateway, so that nobody else can pass for it:
// 32 random bytes, in a file that its owner alone may read.
#pragma once

#include <unistd.h>

#include <string>

#include "absl/status/statusor.h"

namespace outboard::worker {

// 32 random bytes.
std::string NewIdentity();
// What this machine calls itself; "worker" where it does not say.
inline std::string HostName() {
  char host[256] = "worker";
  gethostname(host, sizeof(host) - 1);
  return host;
}

// Reads the identity in `path`; makes the file, and its folder, where it is not there or is no
// identity. The file is locked until this process ends: a second worker that asks for it meanwhile
// gets an identity of its own, which ends with it.
// Errors: UNAVAILABLE  the file cannot be read or written
absl::StatusOr<std::string> OpenIdentity(const std::string& path);

}  // namespace outboard::worker
