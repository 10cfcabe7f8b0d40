// cuInit, devices, contexts, names of errors, cuGetProcAddress.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/gpu/driver/entry.h"

namespace outboard::fake_cuda {
namespace {

std::atomic<bool> initialised{false};
int context_object = 0;  // the one context there is; its address is the handle
// The thread's current contexts. Nothing of it has to be destroyed: a thread's devices may be
// destroyed at its very end, after its other variables.
class ContextStack {
 public:
  bool empty() const { return count_ == 0; }
  void* back() const { return contexts_[count_ - 1]; }
  bool push_back(void* context) {  // false: there is no room
    if (count_ == std::size(contexts_)) return false;
    contexts_[count_++] = context;
    return true;
  }
  void pop_back() { --count_; }

 private:
  void* contexts_[64] = {};
  size_t count_ = 0;
};
constinit thread_local ContextStack contexts;
std::atomic<int> primary_references{0};
std::atomic<unsigned> primary_flags{0};

struct NamedError {
  Result code;
  const char* name;
  const char* text;
};
constexpr NamedError kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device is busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNoBinary, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for the device"},
    {kEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "PTX compilation failed"},
    {kUnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX version is not supported"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in this state"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources for a launch"},
    {kLaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture failed"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun here"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined"},
    {kGraphUpdateFailure, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph's update failed"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"}};

// An H100 SXM, or an older device, by the numbers of CUdevice_attribute.
int AttributeOf(int attribute, int arch, bool* known) {
  const bool hopper = arch >= 90;
  *known = true;
  switch (attribute) {
    case 1: return 1024;  // threads of a block
    case 2:
    case 3: return 1024;
    case 4: return 64;
    case 5: return 2147483647;  // grid x
    case 6:
    case 7: return 65535;
    case 8: return 48 * 1024;  // shared memory of a block, without opting in
    case 9: return 64 * 1024;
    case 10: return 32;
    case 11: return 2147483647;
    case 12: return 65536;    // registers of a block
    case 13: return 1980000;  // clock, kHz
    case 14: return 512;
    case 15: return 1;
    case 16: return FakeDevice::MultiprocessorsOf(arch);
    case 17:
    case 18: return 0;
    case 19: return 1;
    case 20: return 0;
    case 31: return 1;
    case 32: return 1;  // ECC
    case 33: return 0x1b;
    case 34: return 0;
    case 35: return 0;
    case 36: return 2619000;  // memory clock, kHz
    case 37: return 5120;     // memory bus, bits
    case 38: return hopper ? 50 << 20 : 40 << 20;
    case 39: return arch == 89 ? 1536 : 2048;
    case 40: return 3;
    case 41: return 1;
    case 50: return 0;
    case 75: return arch / 10;
    case 76: return arch % 10;
    case 78: return 1;  // priorities of streams
    case 81: return hopper ? 228 * 1024 : arch == 89 ? 100 * 1024 : 164 * 1024;
    case 82: return 65536;
    case 83: return 0;  // managed memory
    case 95: return 1;
    case 97: return hopper ? 227 * 1024 : arch == 89 ? 99 * 1024 : 163 * 1024;
    case 106: return arch == 89 ? 24 : 32;
    case 111: return 1024;
    case 115: return 1;       // memory pools
    case 120: return hopper;  // clusters
    default: *known = false; return 0;
  }
}

// What CUDA_VISIBLE_DEVICES leaves of _DEVICES: ordinals of the machine, in its order.
std::vector<int> Visible() {
  const char* count = std::getenv("OUTBOARD_FAKE_CUDA_DEVICES");
  int all = count != nullptr ? std::atoi(count) : 1;
  const char* const file = std::getenv("OUTBOARD_FAKE_CUDA_DEVICE_FILE");
  if (file != nullptr && access(file, R_OK) != 0) all = std::min(all, 1);
  std::vector<int> ordinals;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    for (int i = 0; i < all; ++i) ordinals.push_back(i);
    return ordinals;
  }
  while (*visible >= '0' && *visible <= '9') {
    char* end = nullptr;
    const long ordinal = std::strtol(visible, &end, 10);
    if (ordinal >= all) break;
    ordinals.push_back(static_cast<int>(ordinal));
    visible = *end == ',' ? end + 1 : end;
  }
  return ordinals;
}
bool IsThere(DeviceOrdinal device) {
  return device >= 0 && device < static_cast<int>(Visible().size());
}
int ArchOf(DeviceOrdinal device) {
  return FakeDevice::Get().arch_of(Visible()[static_cast<size_t>(device)]);
}

}  // namespace

bool Initialised() { return initialised; }
bool HasContext() { return !contexts.empty() && contexts.back() != nullptr; }

}  // namespace outboard::fake_cuda

using namespace outboard::fake_cuda;  // NOLINT: entry points are C

FAKE_API cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  if (Visible().empty()) return kNoDevice;
  FakeDevice::Get();
  initialised = true;
  return kSuccess;
}
FAKE_API cuDriverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = FakeDevice::Get().driver_version();
  return kSuccess;
}
FAKE_API cuDeviceGetCount(int* count) {
  if (!Initialised()) return kNotInitialized;
  *count = static_cast<int>(Visible().size());
  return kSuccess;
}
FAKE_API cuDeviceGet(DeviceOrdinal* device, int ordinal) {
  if (!Initialised()) return kNotInitialized;
  if (!IsThere(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
FAKE_API cuDeviceGetName(char* name, int bytes, DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  const std::string text = "Outboard PTX machine sm_" + std::to_string(ArchOf(device));
  if (bytes <= 0) return kInvalidValue;
  std::strncpy(name, text.c_str(), static_cast<size_t>(bytes));
  name[bytes - 1] = 0;
  return kSuccess;
}
FAKE_API cuDeviceGetUuid(char* uuid, DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  std::memcpy(uuid, "outboard-ptx-mac", 16);
  return kSuccess;
}
FAKE_API cuDeviceGetUuid_v2(char* uuid, DeviceOrdinal device) {
  return cuDeviceGetUuid(uuid, device);
}
FAKE_API cuDeviceGetPCIBusId(char* id, int bytes, DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  if (bytes < 13) return kInvalidValue;
  std::strcpy(id, "0000:1B:00.0");
  return kSuccess;
}
FAKE_API cuDeviceGetAttribute(int* value, int attribute, DeviceOrdinal device) {
  if (!Initialised()) return kNotInitialized;
  if (!IsThere(device)) return kInvalidDevice;
  bool known = false;
  *value = AttributeOf(attribute, ArchOf(device), &known);
  return known ? kSuccess : kInvalidValue;
}
FAKE_API cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  *bytes = FakeDevice::Get().memory().capacity();
  return kSuccess;
}
FAKE_API cuDeviceComputeCapability(int* major, int* minor, DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  *major = ArchOf(device) / 10;
  *minor = ArchOf(device) % 10;
  return kSuccess;
}

FAKE_API cuDevicePrimaryCtxRetain(void** context, DeviceOrdinal device) {
  if (!Initialised()) return kNotInitialized;
  if (!IsThere(device)) return kInvalidDevice;
  FakeDevice::Get().Use(Visible()[static_cast<size_t>(device)]);
  if (FakeDevice::Get().Due("start"))
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  ++primary_references;
  *context = &context_object;
  return FakeDevice::Get().sticky();
}
FAKE_API cuDevicePrimaryCtxRelease_v2(DeviceOrdinal device) {
  if (!IsThere(device)) return kInvalidDevice;
  if (primary_references <= 0) return kInvalidContext;
  --primary_references;
  return kSuccess;
}
FAKE_API cuDevicePrimaryCtxSetFlags_v2(DeviceOrdinal device, unsigned flags) {
  primary_flags = flags;
  return device == 0 ? kSuccess : kInvalidDevice;
}
FAKE_API cuDevicePrimaryCtxGetState(DeviceOrdinal device, unsigned* flags, int* active) {
  *flags = primary_flags;
  *active = primary_references > 0;
  return device == 0 ? kSuccess : kInvalidDevice;
}
// A reset does not bring a device back that has a sticky error: the process has to end, as with
// CUDA.
FAKE_API cuDevicePrimaryCtxReset_v2(DeviceOrdinal device) {
  return device == 0 ? FakeDevice::Get().sticky() : kInvalidDevice;
}
FAKE_API cuCtxCreate_v2(void** context, unsigned flags, DeviceOrdinal device) {
  if (!Initialised()) return kNotInitialized;
  if (!IsThere(device)) return kInvalidDevice;
  if (!contexts.push_back(&context_object)) return kOutOfMemory;
  *context = &context_object;
  return FakeDevice::Get().sticky();
}
FAKE_API cuCtxDestroy_v2(void* context) {
  if (context != &context_object) return kInvalidContext;
  if (!contexts.empty() && contexts.back() == context) contexts.pop_back();
  return kSuccess;
}
FAKE_API cuCtxSetCurrent(void* context) {
  if (!Initialised()) return kNotInitialized;
  if (context != nullptr && context != &context_object) return kInvalidContext;
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(context);
  return kSuccess;
}
FAKE_API cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return Initialised() ? kSuccess : kNotInitialized;
}
FAKE_API cuCtxPushCurrent_v2(void* context) {
  if (context != &context_object) return kInvalidContext;
  return contexts.push_back(context) ? kSuccess : kOutOfMemory;
}
FAKE_API cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kInvalidContext;
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
FAKE_API cuCtxGetDevice(DeviceOrdinal* device) {
  FAKE_READY();
  *device = 0;
  return kSuccess;
}
FAKE_API cuCtxSynchronize() {
  FAKE_READY();
  return FakeDevice::Get().WaitAll();
}
FAKE_API cuCtxSetLimit(int limit, size_t value) {
  FAKE_READY();
  return kSuccess;
}
FAKE_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_READY();
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}
FAKE_API cuCtxSetCacheConfig(int config) { return Ready(); }

FAKE_API cuGetErrorName(Result error, const char** name) {
  for (const NamedError& each : kErrors) {
    if (each.code != error) continue;
    *name = each.name;
    return kSuccess;
  }
  *name = nullptr;
  return kInvalidValue;
}
FAKE_API cuGetErrorString(Result error, const char** text) {
  for (const NamedError& each : kErrors) {
    if (each.code != error) continue;
    *text = each.text;
    return kSuccess;
  }
  *text = nullptr;
  return kInvalidValue;
}

namespace {
void* Symbol(const char* name) {
  Dl_info info = {};
  static void* self = [&info]() -> void* {
    if (dladdr(reinterpret_cast<void*>(&cuInit), &info) == 0) return nullptr;
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  if (self == nullptr) return nullptr;
  for (const char* suffix : {"_v2", ""})
    if (void* found = dlsym(self, (std::string(name) + suffix).c_str())) return found;
  return nullptr;
}
}  // namespace
FAKE_API cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags,
                             int* status) {
  *function = Symbol(name);
  if (status != nullptr) *status = *function != nullptr ? 0 : 1;
  return *function != nullptr ? kSuccess : kNotFound;
}
FAKE_API cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
