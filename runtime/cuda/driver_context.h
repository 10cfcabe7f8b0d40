// A device of NVIDIA's driver as this process uses it: its context, and what became of calls.
//
// Some errors are for good: after an illegal address, a failed launch or an ECC error the driver
// answers every call of this process with the same error. The first of them is kept, and everything
// asked later ends with it, before the driver is called.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/cuda/api.h"

namespace outboard::cuda {

class DriverContext {
 public:
  // `warn`: as of runtime::DeviceOptions; may be empty.
  DriverContext(const DriverApi& api, CUdevice device,
                std::function<void(std::string_view)> warn = nullptr);
  ~DriverContext();
  DriverContext(const DriverContext&) = delete;
  DriverContext& operator=(const DriverContext&) = delete;

  // Makes the context, once, before all other calls but FindName.
  absl::Status Open();
  // Without a context: name() and Attribute() are right afterwards.
  void FindName();

  const DriverApi& api() const { return api_; }
  CUcontext context() const { return context_; }
  const std::string& name() const { return name_; }  // of the device
  int Attribute(CUdevice_attribute what) const;      // 0: not known

  // Makes the context the calling thread's, as every call of the driver requires.
  // Errors: as health()
  absl::Status Enter();

  // What the result of `call` means. Errors:
  //   RESOURCE_EXHAUSTED  the device has no room
  //   INTERNAL            all others, with the driver's words; from then on health() may have it
  absl::Status Check(CUresult code, std::string_view call);

  // Tells once that the host has no pinned memory for copies.
  void WarnOfUnpinnedCopies();
  // Tells once that the driver's linker refuses what the driver loads; `why`: its words.
  void WarnOfUnlinkedCode(absl::string_view why);

  // OK, or the error (INTERNAL) that ended this device for this process.
  absl::Status health() const;

 private:
  const DriverApi api_;
  const CUdevice device_;
  const uint64_t serial_;  // of this object, among all of the process
  CUcontext context_ = nullptr;
  std::string name_;
  const std::function<void(std::string_view)> warn_;
  std::atomic<bool> warned_of_copies_ = false, warned_of_links_ = false;
  mutable absl::Mutex mutex_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
};

// Returns from the function with the error of a call of the driver: OB_CUDA(context, cuInit, 0).
#define OB_CUDA(context, call, ...)                                                        \
  do {                                                                                     \
    const ::outboard::cuda::CUresult ob_code = (context).api().call(__VA_ARGS__);          \
    if (ob_code != ::outboard::cuda::CUDA_SUCCESS) return (context).Check(ob_code, #call); \
  } while (false)

}  // namespace outboard::cuda
