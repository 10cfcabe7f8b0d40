// Modules, the linker, functions, launches, tensor maps.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gpu/driver/entry.h"
#include "tests/gpu/ptx/tensor_map.h"

namespace outboard::fake_cuda {
namespace {

// What our linker makes of PTX, in place of a cubin: this word, then the texts.
constexpr char kCubinMark[] = "OBCUBIN\n";
constexpr int kSharedWithoutOptIn = 48 * 1024;
// Numbers of CUjit_option.
constexpr int kErrorLog = 5, kErrorLogBytes = 6;

struct FakeLink {
  std::string ptx;
  std::string cubin;
  char* log = nullptr;
  size_t log_bytes = 0;
};

struct Log {
  char* buffer = nullptr;
  size_t bytes = 0;
  void Write(const std::string& text) const {
    if (buffer == nullptr || bytes == 0) return;
    const size_t length = std::min(bytes - 1, text.size());
    std::memcpy(buffer, text.data(), length);
    buffer[length] = 0;
  }
};
Log LogOf(unsigned count, const int* options, void** values) {
  Log log;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == kErrorLog) log.buffer = static_cast<char*>(values[i]);
    if (options[i] == kErrorLogBytes) log.bytes = reinterpret_cast<size_t>(values[i]);
  }
  return log;
}

// sm_90a runs on 9.0 only, sm_80 on every later device.
Result CheckTarget(const ptx::Module& module, const Log& log) {
  const FakeDevice& device = FakeDevice::Get();
  const std::string& target = module.target;
  if (target.rfind("sm_", 0) != 0) {
    log.Write("a module needs .target sm_NN");
    return kInvalidPtx;
  }
  const int arch = std::atoi(target.c_str() + 3);
  if (target.back() == 'a' ? arch != device.arch() : arch > device.arch()) {
    log.Write(absl::StrCat("compiled for ", target, ", the device is sm_", device.arch()));
    return kNoBinary;
  }
  // CUDA 12.n reads PTX up to 8.n, CUDA 13.n up to 9.n.
  const int cuda = device.driver_version();
  if (module.version > 10 * (cuda / 1000 - 4) + cuda % 1000 / 10) {
    log.Write(
        absl::StrCat("PTX ISA ", module.version / 10, ".", module.version % 10, " is too new"));
    return kUnsupportedPtxVersion;
  }
  return kSuccess;
}

Result LoadText(void** handle, std::string_view text, const Log& log) {
  FakeDevice& device = FakeDevice::Get();
  const bool linked = text.substr(0, sizeof(kCubinMark) - 1) == kCubinMark;
  if (linked) text.remove_prefix(sizeof(kCubinMark) - 1);
  std::unique_lock<std::mutex> lock(device.memory_mutex());
  absl::StatusOr<std::unique_ptr<ptx::LoadedModule>> loaded = device.machine().Load(text);
  lock.unlock();
  if (!loaded.ok()) {
    log.Write(std::string(loaded.status().message()));
    return loaded.status().code() == absl::StatusCode::kResourceExhausted ? kOutOfMemory
                                                                          : kInvalidPtx;
  }
  const Result checked = CheckTarget(*(*loaded)->module, log);
  if (checked != kSuccess) return checked;
  auto module = std::make_unique<FakeModule>();
  module->loaded = *std::move(loaded);
  module->relocatable = linked;
  *handle = device.Own(std::move(module));
  return kSuccess;
}

}  // namespace

Result GatherArguments(const FakeFunction& function, void** arguments, void** extra,
                       std::vector<uint8_t>* out) {
  out->assign(static_cast<size_t>(function.code->parameter_bytes), 0);
  if (extra != nullptr) {
    // {1, buffer, 2, &bytes, 0}: CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END.
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (int i = 0; extra[i] != nullptr && i < 8; i += 2) {
      if (reinterpret_cast<uintptr_t>(extra[i]) == 1) buffer = extra[i + 1];
      if (reinterpret_cast<uintptr_t>(extra[i]) == 2) bytes = *static_cast<size_t*>(extra[i + 1]);
    }
    if (bytes < out->size()) return kInvalidValue;
    std::memcpy(out->data(), buffer, out->size());
    return kSuccess;
  }
  if (arguments == nullptr) return function.code->parameters.empty() ? kSuccess : kInvalidValue;
  for (size_t i = 0; i < function.code->parameters.size(); ++i) {
    const ptx::Parameter& parameter = function.code->parameters[i];
    if (arguments[i] == nullptr) return kInvalidValue;
    std::memcpy(out->data() + parameter.offset, arguments[i], static_cast<size_t>(parameter.bytes));
  }
  return kSuccess;
}

Result CheckLaunch(const FakeFunction& function, const ptx::LaunchConfig& config) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    threads *= config.block[i];
    if (config.grid[i] == 0 || config.block[i] == 0) return kInvalidValue;
  }
  if (threads > 1024 || config.block[2] > 64 || config.grid[1] > 65535 || config.grid[2] > 65535)
    return kInvalidValue;
  if (function.code->max_threads > 0 && threads > static_cast<uint64_t>(function.code->max_threads))
    return kInvalidValue;
  if (config.shared_bytes > static_cast<uint32_t>(function.dynamic_shared_max))
    return kInvalidValue;
  return kSuccess;
}

// Whether the fault "ptx" makes the driver refuse a text. After the linker has refused one, the
// next load of the same text is refused, too: a real driver would take it neither way. Later it may
// be accepted, since a kernel with simpler Opts can have the same text.
static bool IsRefused(const std::string& text, bool by_linker) {
  static std::mutex mutex;
  static std::set<std::string> not_linked;
  std::lock_guard<std::mutex> lock(mutex);
  if (!by_linker && not_linked.erase(text) > 0) return true;
  if (!FakeDevice::Get().Due("ptx")) return false;
  if (by_linker) not_linked.insert(text);
  return true;
}

}  // namespace outboard::fake_cuda

using namespace outboard::fake_cuda;  // NOLINT: entry points are C

FAKE_API cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options,
                            void** values) {
  FAKE_READY();
  if (module == nullptr || image == nullptr) return kInvalidValue;
  const Log log = LogOf(count, options, values);
  // Of texts whose errors somebody reads: tenants' kernels, and not a program's own.
  if (log.buffer != nullptr && IsRefused(static_cast<const char*>(image), /*by_linker=*/false))
    return kInvalidPtx;
  return LoadText(module, static_cast<const char*>(image), log);
}
FAKE_API cuModuleLoadData(void** module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
FAKE_API cuModuleUnload(void* handle) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  auto* module = static_cast<FakeModule*>(handle);
  if (!device.Owns(module)) return kInvalidHandle;
  const Result result = device.WaitAll();
  if (result != kSuccess) return result;
  if (IsInAGraph(*module))
    device.Report("misuse: a module is unloaded of which a graph that lives has a kernel");
  {
    std::lock_guard<std::mutex> lock(device.memory_mutex());
    device.machine().Unload(module->loaded.get());
  }
  device.Drop(module);
  return kSuccess;
}
FAKE_API cuModuleGetFunction(void** function, void* handle, const char* name) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  auto* module = static_cast<FakeModule*>(handle);
  if (!device.Owns(module)) return kInvalidHandle;
  const auto it = module->loaded->module->functions.find(name);
  if (it == module->loaded->module->functions.end()) return kNotFound;
  std::lock_guard<std::mutex> lock(device.mutex());
  std::unique_ptr<FakeFunction>& slot = module->functions[name];
  if (slot == nullptr) {
    slot = std::make_unique<FakeFunction>();
    slot->module = module;
    slot->code = it->second.get();
    slot->dynamic_shared_max =
        kSharedWithoutOptIn - (module->loaded->module->shared_bytes - outboard::ptx::kSharedBase);
  }
  *function = slot.get();
  return kSuccess;
}
FAKE_API cuModuleGetGlobal_v2(DevicePointer* address, size_t* bytes, void* handle,
                              const char* name) {
  FAKE_READY();
  auto* module = static_cast<FakeModule*>(handle);
  if (!FakeDevice::Get().Owns(module)) return kInvalidHandle;
  const auto it = module->loaded->globals.find(name);
  if (it == module->loaded->globals.end()) return kNotFound;
  if (address != nullptr) *address = it->second;
  if (bytes != nullptr)
    for (const auto& data : module->loaded->module->globals)
      if (data.name == name) *bytes = static_cast<size_t>(data.bytes);
  return kSuccess;
}

FAKE_API cuLinkCreate_v2(unsigned count, int* options, void** values, void** state) {
  FAKE_READY();
  auto link = std::make_unique<FakeLink>();
  const Log log = LogOf(count, options, values);
  link->log = log.buffer;
  link->log_bytes = log.bytes;
  *state = FakeDevice::Get().Own(std::move(link));
  return kSuccess;
}
FAKE_API cuLinkAddData_v2(void* state, int type, void* data, size_t bytes, const char* name,
                          unsigned count, int* options, void** values) {
  FAKE_READY();
  auto* link = static_cast<FakeLink*>(state);
  if (!FakeDevice::Get().Owns(link)) return kInvalidHandle;
  constexpr int kPtx = 1;  // CU_JIT_INPUT_PTX
  if (type != kPtx) return kInvalidImage;
  if (!link->ptx.empty()) return kNotSupported;  // one text a link
  FakeDevice::Get().CountLink();
  link->ptx.assign(static_cast<const char*>(data), bytes);
  while (!link->ptx.empty() && link->ptx.back() == 0) link->ptx.pop_back();
  if (IsRefused(link->ptx, /*by_linker=*/true)) return kInvalidPtx;
  absl::StatusOr<std::unique_ptr<outboard::ptx::Module>> module = outboard::ptx::Parse(link->ptx);
  const Log log{link->log, link->log_bytes};
  if (!module.ok()) {
    log.Write(std::string(module.status().message()));
    return kInvalidPtx;
  }
  return CheckTarget(**module, log);
}
FAKE_API cuLinkComplete(void* state, void** cubin, size_t* bytes) {
  FAKE_READY();
  auto* link = static_cast<FakeLink*>(state);
  if (!FakeDevice::Get().Owns(link)) return kInvalidHandle;
  link->cubin = kCubinMark + link->ptx;
  *cubin = link->cubin.data();
  // With the zero at the end, which says where the text ends.
  *bytes = link->cubin.size() + 1;
  return kSuccess;
}
FAKE_API cuLinkDestroy(void* state) {
  return FakeDevice::Get().Drop(static_cast<FakeLink*>(state)) ? kSuccess : kInvalidHandle;
}

FAKE_API cuFuncSetAttribute(void* handle, int attribute, int value) {
  FAKE_READY();
  auto* function = static_cast<FakeFunction*>(handle);
  constexpr int kDynamicShared = 8, kCarveout = 9, kNonPortableCluster = 14;
  if (attribute == kDynamicShared) {
    const int used = function->module->loaded->module->shared_bytes - outboard::ptx::kSharedBase;
    if (value < 0 || value + used > 227 * 1024) return kInvalidValue;
    function->dynamic_shared_max = value;
    return kSuccess;
  }
  return attribute == kCarveout || attribute == kNonPortableCluster ? kSuccess : kInvalidValue;
}
FAKE_API cuFuncGetAttribute(int* value, int attribute, void* handle) {
  FAKE_READY();
  auto* function = static_cast<FakeFunction*>(handle);
  switch (attribute) {
    case 0:
      *value = function->code->max_threads > 0 ? function->code->max_threads : 1024;
      return kSuccess;
    case 1:
      *value = function->module->loaded->module->shared_bytes - outboard::ptx::kSharedBase;
      return kSuccess;
    case 2: *value = 0; return kSuccess;
    case 3: *value = function->code->local_bytes; return kSuccess;
    // ptxas is not here: what a launch bound would allow.
    case 4:
      *value =
          65536 / (function->code->max_threads > 0 ? function->code->max_threads : 1024) / 8 * 8;
      break;
    case 5: *value = function->module->loaded->module->version; return kSuccess;
    case 6: *value = FakeDevice::Get().arch(); return kSuccess;
    case 8: *value = function->dynamic_shared_max; return kSuccess;
    default: return kInvalidValue;
  }
  *value = std::min(*value, 255);
  return kSuccess;
}
FAKE_API cuFuncSetCacheConfig(void* handle, int config) { return Ready(); }
FAKE_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads,
                                                     size_t shared) {
  FAKE_READY();
  if (threads <= 0) return kInvalidValue;
  const int by_threads = 2048 / ((threads + 31) / 32 * 32);
  *blocks =
      std::min({by_threads, 32, shared > 0 ? static_cast<int>(228 * 1024 / (shared + 1024)) : 32});
  return kSuccess;
}

// How many clusters the device runs at once: one, or none on demand.
FAKE_API cuOccupancyMaxActiveClusters(int* clusters, void* handle, const LaunchExConfig* config) {
  FAKE_READY();
  if (clusters == nullptr || handle == nullptr || config == nullptr) return kInvalidValue;
  *clusters = FakeDevice::Get().Due("clusters") ? 0 : 1;
  return kSuccess;
}

namespace {
Result Launch(void* handle, outboard::ptx::LaunchConfig config, void* stream_handle,
              void** arguments, void** extra) {
  FAKE_READY();
  FakeDevice& device = FakeDevice::Get();
  FakeStream* stream = device.StreamOf(stream_handle);
  auto* function = static_cast<FakeFunction*>(handle);
  if (stream == nullptr || function == nullptr) return kInvalidHandle;
  Result result = CheckLaunch(*function, config);
  if (result == kSuccess) result = GatherArguments(*function, arguments, extra, &config.parameters);
  if (result != kSuccess) return result;
  GraphNode work;
  work.kind = GraphNode::kKernel;
  work.function = function;
  work.launch = std::move(config);
  return device.Enqueue(stream, std::move(work));
}
}  // namespace

FAKE_API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, void* stream, void** arguments,
                        void** extra) {
  outboard::ptx::LaunchConfig config;
  config.grid = {gx, gy, gz};
  config.block = {bx, by, bz};
  config.shared_bytes = shared;
  return Launch(function, std::move(config), stream, arguments, extra);
}
FAKE_API cuLaunchKernelEx(const LaunchExConfig* from, void* function, void** arguments,
                          void** extra) {
  if (from == nullptr) return kInvalidValue;
  outboard::ptx::LaunchConfig config;
  for (int i = 0; i < 3; ++i) {
    config.grid[i] = from->grid[i];
    config.block[i] = from->block[i];
  }
  config.shared_bytes = from->shared_bytes;
  for (unsigned i = 0; i < from->attribute_count; ++i) {
    if (from->attributes[i].id == kAttributeProgrammatic)
      config.dependent = from->attributes[i].value.number != 0;
    if (from->attributes[i].id != kAttributeCluster) continue;
    const auto& cluster = from->attributes[i].value.cluster;
    config.cluster = {cluster.x, cluster.y, cluster.z};
  }
  return Launch(function, std::move(config), from->stream, arguments, extra);
}

// By the rules of cuTensorMapEncodeTiled: what it refuses is refused.
FAKE_API cuTensorMapEncodeTiled(void* out, int type, unsigned rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* element_strides, int interleave, int swizzle,
                                int promotion, int fill) {
  if (!Initialised()) return kNotInitialized;
  // CUtensorMapDataType: u8 u16 u32 i32 u64 i64 f16 f32 f64 bf16 f32_ftz tf32 tf32_ftz
  constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  const auto base = reinterpret_cast<uint64_t>(address);
  if (out == nullptr || reinterpret_cast<uintptr_t>(out) % 64 != 0) return kInvalidValue;
  if (type < 0 || type > 12 || rank < 1 || rank > 5 || base % 16 != 0) return kInvalidValue;
  if (interleave != 0) return kNotSupported;
  if (swizzle < 0 || swizzle > 3) return kInvalidValue;
  outboard::ptx::TensorMap map;
  map.type = static_cast<uint8_t>(type);
  map.rank = static_cast<uint8_t>(rank);
  map.swizzle = static_cast<uint8_t>(swizzle);
  map.address = base;
  map.nan_fill = static_cast<uint8_t>(fill);
  map.element_bytes = static_cast<uint8_t>(kBytes[type]);
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || dims[i] > (uint64_t{1} << 32) || box[i] == 0 || box[i] > 256)
      return kInvalidValue;
    if (element_strides[i] == 0 || element_strides[i] > 8) return kInvalidValue;
    map.dims[i] = dims[i];
    map.box[i] = static_cast<uint16_t>(box[i]);
    map.element_strides[i] = static_cast<uint8_t>(element_strides[i]);
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] >= (uint64_t{1} << 40)) return kInvalidValue;
    map.strides[i - 1] = strides[i - 1];
  }
  const uint64_t inner = uint64_t{box[0]} * map.element_bytes;
  if (inner % 16 != 0) return kInvalidValue;
  if (swizzle != 0 && inner > (16u << swizzle)) return kInvalidValue;
  std::memcpy(out, &map, sizeof(map));
  return kSuccess;
}
FAKE_API cuTensorMapReplaceAddress(void* out, void* address) {
  if (reinterpret_cast<uint64_t>(address) % 16 != 0) return kInvalidValue;
  static_cast<outboard::ptx::TensorMap*>(out)->address = reinterpret_cast<uint64_t>(address);
  return kSuccess;
}
