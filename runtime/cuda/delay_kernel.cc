#include "runtime/cuda/delay_kernel.h"

#include "absl/strings/substitute.h"

namespace outboard::cuda {
namespace {

// Some ten calls of the driver. A launch takes 3 to 10 us of the host, an event less.
constexpr int kDelayNs = 50'000;
constexpr int kSleepNs = 1'000;  // of a look at the clock; PTX allows any time up to twice that
// Looks, should the clock stand: some milliseconds at most.
constexpr int kLooksMax = 4096;

}  // namespace

std::string DelayText() {
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
                          kDelayKernel, kDelayNs, kSleepNs, kLooksMax);
}

DelayKernel::~DelayKernel() {
  if (module_ != nullptr && context_->Enter().ok()) context_->api().cuModuleUnload(module_);
}

absl::Status DelayKernel::Load() {
  if (function_ != nullptr) return absl::OkStatus();
  const std::string text = DelayText();
  if (module_ == nullptr)
    OB_CUDA(*context_, cuModuleLoadDataEx, &module_, text.c_str(), 0, nullptr, nullptr);
  OB_CUDA(*context_, cuModuleGetFunction, &function_, module_, kDelayKernel);
  return absl::OkStatus();
}

absl::Status DelayKernel::Queue(CUstream stream) {
  OB_CUDA(*context_, cuLaunchKernel, function_, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  return absl::OkStatus();
}

}  // namespace outboard::cuda
