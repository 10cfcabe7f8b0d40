// An `outboard serve` of this process's own, for programs that run without CLOUD: started by the
// first session that needs it, shared by all, stopped when the last one is gone or the process
// ends, whatever ends it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::transport {

class PrivateServe {
 public:
  // The running one, or a new one that is ready.
  // Errors: UNAVAILABLE   no binary found (says what to set), or it did not become ready within 20
  // s
  static absl::StatusOr<std::shared_ptr<PrivateServe>> Get();
  ~PrivateServe();
  PrivateServe(const PrivateServe&) = delete;
  PrivateServe& operator=(const PrivateServe&) = delete;

  const std::string& target() const { return target_; }

 private:
  PrivateServe() = default;
  static absl::StatusOr<std::shared_ptr<PrivateServe>> Start(const std::string& binary);

  std::string folder_, target_;
  pid_t pid_ = -1;
  int life_fd_ = -1;  // the write end that nobody writes: when it closes, serve stops
};

// $OUTBOARD_BIN, else `outboard` beside this program, else on PATH; empty if there is none.
std::string FindOutboardBinary();

}  // namespace outboard::transport
