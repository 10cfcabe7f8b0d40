// A kernel that does nothing for some 50 us, so that what is queued behind it meanwhile need not
// wait for the host. Without it the time between two events around a small kernel has the host's
// call in it, since an idle device takes the first event at once.
//
// It touches no memory, so the caches stay as they are. Threads: one at a time.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {

// Its text, for every GPU, and its name there. It has no parameters; one thread is enough.
inline constexpr char kDelayKernel[] = "outboard_delay";
std::string DelayText();

class DelayKernel {
 public:
  explicit DelayKernel(DriverContext* context) : context_(context) {}
  ~DelayKernel();
  DelayKernel(const DelayKernel&) = delete;
  DelayKernel& operator=(const DelayKernel&) = delete;

  // Loads it, once; before Queue, as the driver may wait for the device meanwhile.
  // Errors: as DriverContext::Check
  absl::Status Load();
  // Errors: as DriverContext::Check
  absl::Status Queue(CUstream stream);

 private:
  DriverContext* const context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace outboard::cuda
