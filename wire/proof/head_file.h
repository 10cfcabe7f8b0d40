// The heads of the ledger that this user's programs were shown, in a file of theirs: what a gateway
// has signed, and must still hold (`outboard invoice --verify`).
//
// One line of text each. The file is bounded: where it is full, every second line of the older
// three quarters goes, so that old heads become sparser and none of the newest is lost.
// Threads and processes: any; a lock on the file makes them take turns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"

namespace outboard::signing {

inline constexpr size_t kHeadFileBytesMax = 512 << 10;  // some 1,200 heads

struct SeenHead {
  std::string target;  // the gateway, as the program named it
  proto::LedgerHead head;
};

class HeadFile {
 public:
  explicit HeadFile(std::string path) : path_(std::move(path)) {}

  // Checks the head's signature and adds it; makes the file, and its folder, where there is none.
  // Errors: DATA_LOSS         the signature is wrong: nothing is added
  //         INVALID_ARGUMENT  a target with spaces, or a longer one than 300 bytes
  //         UNAVAILABLE       the file cannot be written
  absl::Status Add(const SeenHead& seen) const;

  struct Heads {
    std::vector<SeenHead> heads;  // in the order in which they were seen
    size_t damaged_lines = 0;
  };
  // No file: no heads. UNAVAILABLE: it cannot be read.
  absl::StatusOr<Heads> Read() const;

 private:
  const std::string path_;
};

// CLOUD_HEADS; where that is not set, `seen-heads` in $OUTBOARD_DATA, else in
// $XDG_DATA_HOME/outboard, else in ~/.local/share/outboard. "": none is kept (CLOUD_HEADS=0, or
// there is no home folder).
std::string HeadFilePath();

}  // namespace outboard::signing
