// What a node is told: by its image, which is trusted, and by the kernel's command line, which came
// over the network and may be anybody's. Whom the node believes to be its gateway, and since when
// the clock cannot be right, only the image says.
//
// Threads: any; pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::worker {

struct NodeConfig {
  std::string fingerprint;   // of the gateway's CA; the image's alone
  int64_t built_unix_s = 0;  // of the image; the clock is never before it
  std::string gateway;       // HOST:PORT where workers join: the command line's, else the image's
  std::string claim;         // of the command line; empty: none
  std::string boot_server;   // HOST:PORT of the command line, which has drivers; empty: none
  bool debug = false;        // the image's alone: it has a shell, for the console
  bool leaves_tpm = false;   // it enrols as a machine without a TPM does
  // Of an image on trial: the machine starts again where it has not joined by then; 0: never.
  int joins_within_s = 0;
  std::string image;         // its digest, "sha256:..." of the command line; for people
};

// `image`: lines of NAME=VALUE, in the image's file. `command_line`: words, of which those count
// that begin with "outboard.".
// Errors: INVALID_ARGUMENT  names what is missing or no such value
absl::StatusOr<NodeConfig> ParseNodeConfig(std::string_view image, std::string_view command_line);

}  // namespace outboard::worker
