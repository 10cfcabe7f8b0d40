// A private `outboard serve` for this process, for programs that run without CLOUD. Started by the
// first session that needs it, shared by all, and stopped after the last session or when the
// process ends for any reason. It is at no price: the machine is the user's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace outboard::session {

// Devices of an `outboard serve` on a CPU without --devices: several, since a program may hold
// several sessions.
inline constexpr uint32_t kServeDevices = 4;

class PrivateServe {
 public:
  // Returns the running one if it has so many devices, or starts one and waits until it is ready.
  // Errors: UNAVAILABLE   no binary found (names the variable to set), or not ready within 20 s
  static absl::StatusOr<std::shared_ptr<PrivateServe>> Get(uint32_t devices = 1);
  // True once this process has begun to start one, until its last session ends. Never waits.
  static bool Running();
  ~PrivateServe();
  PrivateServe(const PrivateServe&) = delete;
  PrivateServe& operator=(const PrivateServe&) = delete;

  const std::string& target() const { return target_; }

 private:
  struct Shared;  // by all sessions of the process
  static Shared& TheOne();

  PrivateServe() = default;
  static absl::StatusOr<std::shared_ptr<PrivateServe>> Start(const std::string& binary,
                                                            uint32_t devices);

  std::string folder_, target_;
  uint32_t devices_ = 0;  // that its sessions have together
  pid_t pid_ = -1;
  int life_fd_ = -1;  // the write end, never written: serve stops when it closes
};

// Returns $OUTBOARD_BIN, else `outboard` in bin/ beside the module that holds this library (as in a
// wheel), next to this program, or on PATH; empty if there is none.
std::string FindOutboardBinary();

}  // namespace outboard::session
