// A kernel that does nothing for some 50 us, so that what is queued behind it meanwhile need not
// wait for the host. Without it the time between two events around a small kernel has the host's
// call in it, since an idle device takes the first event at once.
//
// It touches no memory, so the caches stay as they are. Threads: one at a time.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/substitute.h"
#include "runtime/cuda/driver_context.h"

namespace outboard::cuda {

class DelayKernel {
 public:
  explicit DelayKernel(DriverContext* context) : context_(context) {}
  ~DelayKernel() {
    if (module_ != nullptr && context_->Enter().ok()) context_->api().cuModuleUnload(module_);
  }
  DelayKernel(const DelayKernel&) = delete;
  DelayKernel& operator=(const DelayKernel&) = delete;

  // Loads it, once; before Queue, as the driver may wait for the device meanwhile.
  // Errors: as DriverContext::Check
  absl::Status Load() {
    if (function_ != nullptr) return absl::OkStatus();
    const std::string text = Text();
    if (module_ == nullptr)
      OB_CUDA(*context_, cuModuleLoadDataEx, &module_, text.c_str(), 0, nullptr, nullptr);
    OB_CUDA(*context_, cuModuleGetFunction, &function_, module_, kName);
    return absl::OkStatus();
  }

  // After Load. Errors: as DriverContext::Check
  absl::Status Queue(CUstream stream) {
    OB_CUDA(*context_, cuLaunchKernel, function_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    return absl::OkStatus();
  }

 private:
  static constexpr char kName[] = "outboard_delay";
  // Some ten calls of the driver: a launch takes 3 to 10 us of the host, an event less.
  static constexpr int kDelayNs = 50'000;
  static constexpr int kSleepNs = 1'000;  // between two looks at the clock; at most twice that
  static constexpr int kLooksMax = 4096;  // should the clock stand: some milliseconds

  // For every GPU, without parameters; one thread is enough.
  static std::string Text() {
    return absl::Substitute(R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry $0()
{
  .reg .pred %p<2>;
  .reg .b32 %r<1>;
  .reg .b64 %rd<2>;
  mov.u32 %r0, $3;
  mov.u64 %rd0, %globaltimer;
WAIT:
  nanosleep.u32 $2;
  sub.u32 %r0, %r0, 1;
  mov.u64 %rd1, %globaltimer;
  sub.u64 %rd1, %rd1, %rd0;
  setp.lt.u64 %p0, %rd1, $1;
  setp.ne.u32 %p1, %r0, 0;
  and.pred %p0, %p0, %p1;
  @%p0 bra WAIT;
  ret;
}
)",
                            kName, kDelayNs, kSleepNs, kLooksMax);
  }

  DriverContext* const context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace outboard::cuda
