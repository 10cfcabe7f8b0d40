#include "runtime/cuda/driver_context.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/device.h"

namespace outboard::cuda {
namespace {

std::atomic<uint64_t> next_serial{1};
thread_local uint64_t entered = 0;  // the DriverContext whose context this thread has

// What ends a context, by the driver's documentation, and a device that is gone.
bool IsForGood(CUresult code) {
  switch (code) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
  }
}

// Of the device itself, whatever ran on it.
bool IsMemoryError(CUresult code) {
  return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
         code == CUDA_ERROR_CONTAINED;
}

}  // namespace

DriverContext::DriverContext(const DriverApi& api, CUdevice device,
                             std::function<void(std::string_view)> warn)
    : api_(api),
      device_(device),
      serial_(next_serial.fetch_add(1)),
      warn_(std::move(warn)) {}

DriverContext::~DriverContext() {
  if (context_ == nullptr) return;
  api_.cuDevicePrimaryCtxRelease(device_);
  if (entered == serial_) entered = 0;
}

void DriverContext::FindName() {
  char name[256] = "";
  if (api_.cuDeviceGetName(name, sizeof(name), device_) != CUDA_SUCCESS) name[0] = '\0';
  name[sizeof(name) - 1] = '\0';
  name_ = name[0] != '\0' ? name : "the device";
}

absl::Status DriverContext::Open() {
  FindName();
  OB_CUDA(*this, cuDevicePrimaryCtxRetain, &context_, device_);
  return Enter();
}

int DriverContext::Attribute(CUdevice_attribute what) const {
  int value = 0;
  return api_.cuDeviceGetAttribute(&value, what, device_) == CUDA_SUCCESS ? value : 0;
}

absl::Status DriverContext::Enter() {
  if (absl::Status status = health(); !status.ok()) return status;
  if (entered == serial_) return absl::OkStatus();
  OB_CUDA(*this, cuCtxSetCurrent, context_);
  entered = serial_;
  return absl::OkStatus();
}

absl::Status DriverContext::Check(CUresult code, std::string_view call) {
  if (code == CUDA_SUCCESS) return absl::OkStatus();
  const std::string what = absl::StrCat(std::string(call), ": ", Describe(api_, code));
  if (IsForGood(code)) {
    absl::MutexLock lock(&mutex_);
    if (health_.ok()) {
      health_ = absl::InternalError(
          absl::StrCat("CUDA: ", name_, " is lost to this process, which must end: ", what));
      if (IsMemoryError(code)) health_ = runtime::AsMemoryFault(health_);
    }
    return health_;
  }
  const std::string message = absl::StrCat("CUDA: ", what);
  if (code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
    return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

void DriverContext::WarnOfUnpinnedCopies() {
  if (warn_ == nullptr || warned_of_copies_.exchange(true)) return;
  warn_(absl::StrCat("CUDA: the machine has no memory left to pin for copies to and from ", name_,
                     ", so they are slower"));
}

void DriverContext::WarnOfUnlinkedCode(absl::string_view why) {
  if (warn_ == nullptr || warned_of_links_.exchange(true)) return;
  warn_(absl::StrCat("CUDA: the driver's linker does not take a kernel that the driver loads. Such "
                     "kernels are compiled again by each process, so first steps are slower: ",
                     why));
}

absl::Status DriverContext::health() const {
  absl::MutexLock lock(&mutex_);
  return health_;
}

}  // namespace outboard::cuda
