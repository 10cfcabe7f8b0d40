// What every entry point of the fake driver begins with.
#pragma once

#include "tests/gpu/driver/device.h"

#define FAKE_API extern "C" __attribute__((visibility("default"))) int

namespace outboard::fake_cuda {

bool Initialised();
bool HasContext();  // of this thread

// kSuccess, or why a call that needs a context cannot go on.
inline Result Ready() {
  if (!Initialised()) return kNotInitialized;
  if (!HasContext()) return kInvalidContext;
  return FakeDevice::Get().sticky();
}

// Kernel arguments as the driver gets them: an array of pointers, or `extra` with one buffer.
Result GatherArguments(const FakeFunction& function, void** arguments, void** extra,
                       std::vector<uint8_t>* out);
Result CheckLaunch(const FakeFunction& function, const ptx::LaunchConfig& config);

// Whether a node of a graph that lives, or of an instantiated one, has a function of this module.
bool IsInAGraph(const FakeModule& module);

}  // namespace outboard::fake_cuda

#define FAKE_READY()                                                                 \
  do {                                                                               \
    const ::outboard::fake_cuda::Result fake_ready = ::outboard::fake_cuda::Ready(); \
    if (fake_ready != ::outboard::fake_cuda::kSuccess) return fake_ready;            \
  } while (0)
