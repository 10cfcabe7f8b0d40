// The smallest CUDA driver that runtime/cuda can use: memory at addresses of its own, streams that
// do nothing before somebody waits, modules that keep their text alone. A kernel adds 1 to the i64
// at its first argument, or VAR 0 if its text reads VARs. The driver in tests/gpu runs PTX.
//
// It counts what tests ask for (outboard_fake_get) and fails when they ask (outboard_fake_set).
// What a program must not do (a copy that is not from pinned memory, a module that goes while a
// launch of it is queued) counts as a "fault".
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/cuda/api.h"

namespace outboard::cuda {

void MeetOtherLinks();                               // fake_cuda_links.cc
const char* WhyNotLinked(const std::string& text);  // fake_cuda_links.cc
struct CUctx_st {};
struct CUmod_st {
  std::string text;
};
struct CUfunc_st {
  CUmodule module;
  std::string name;
  size_t params = 0;
  bool reads_vars = false;
  int dynamic_shared_max = 48 << 10;
};
struct CUstream_st {
  struct Entry {
    std::function<void()> work;
    CUmodule module = nullptr;
    CUstream awaited = nullptr;  // runs after that place of that stream
    uint64_t position = 0;
  };
  std::deque<Entry> queue;
  uint64_t queued = 0, done = 0;
};
struct CUevent_st {
  CUstream stream = nullptr;
  uint64_t position = 0;  // of its stream, that it waits for
  double time = 0;
};
struct CUgraphNode_st {
  CUfunction function;
  unsigned blocks[3];
  std::vector<uint64_t> arguments;
};
struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
  size_t edges = 0;  // from each node to the next
};
struct CUlinkState_st {
  std::string code;
  char* log = nullptr;
};
struct CUgraphExec_st {
  std::deque<CUgraphNode_st> nodes;
  std::map<CUgraphNode, size_t> places;
};

namespace {

constexpr CUdeviceptr kFirstAddress = CUdeviceptr{1} << 60;  // no pointer of a process
constexpr size_t kAlignment = 256;
constexpr char kCodeMark[] = "LINKED\n";  // what linked code begins with, in place of a cubin

struct FakeState {
  std::recursive_mutex mutex;
  std::map<std::string, int64_t> values = {
      {"version", 12040}, {"devices", 1}, {"memory", 64 << 20}, {"major", 9}};
  std::map<CUdeviceptr, std::vector<char>> memory;
  CUdeviceptr next = kFirstAddress;
  std::map<const char*, size_t> pinned;
  std::map<std::pair<CUmodule, std::string>, std::unique_ptr<CUfunc_st>> functions;
  std::vector<CUstream> streams;
  std::set<const void*> objects;  // all others that live; those of a lost device for ever
  CUctx_st context;
  CUresult sticky = CUDA_SUCCESS;
  double clock = 0;  // in milliseconds; a launch takes one
};

FakeState& State() {
  static auto* const state = new FakeState;
  return *state;
}
using Lock = std::lock_guard<std::recursive_mutex>;
thread_local bool has_context = false;

template <typename T>
T* Own(T* object) {
  State().objects.insert(object);
  return object;
}
template <typename T>
void Delete(T* object) {
  State().objects.erase(object);
  delete object;
}

// True at the n-th call after a test has set `name` to n.
bool IsDue(const char* name) {
  int64_t& left = State().values[name];
  return left > 0 && --left == 0;
}

CUresult Ready() {
  if (!has_context) return CUDA_ERROR_INVALID_CONTEXT;
  return State().sticky;
}
#define FAKE_READY()              \
  const Lock lock(State().mutex); \
  if (const CUresult ob_ready = Ready(); ob_ready != CUDA_SUCCESS) return ob_ready

char* At(CUdeviceptr address, size_t bytes) {
  FakeState& state = State();
  auto it = state.memory.upper_bound(address);
  if (it != state.memory.begin()) {
    --it;
    if (address - it->first + bytes <= it->second.size())
      return it->second.data() + (address - it->first);
  }
  if (state.sticky == CUDA_SUCCESS) state.sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
  return nullptr;
}

bool IsPinned(const void* data, size_t bytes) {
  const char* const first = static_cast<const char*>(data);
  auto it = State().pinned.upper_bound(first);
  if (it == State().pinned.begin()) return false;
  --it;
  return static_cast<size_t>(first - it->first) + bytes <= it->second;
}

void Enqueue(CUstream stream, std::function<void()> work, CUmodule module = nullptr) {
  stream->queue.push_back({std::move(work), module});
  ++stream->queued;
}

void RunTo(CUstream stream, uint64_t position) {
  while (stream->done < position && !stream->queue.empty()) {
    const CUstream_st::Entry entry = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (State().sticky == CUDA_SUCCESS) entry.work();
    ++stream->done;
  }
}

// A stream that was destroyed has done all its work.
void WaitFor(CUstream stream, uint64_t position) {
  if (std::ranges::find(State().streams, stream) != State().streams.end()) RunTo(stream, position);
}

// If "copies early" is set, runs what may run of all streams but the first, which is that of work.
void RunCopiesEarly() {
  if (State().values["copies early"] == 0) return;
  for (const CUstream stream : State().streams) {
    if (stream == State().streams.front()) continue;
    while (!stream->queue.empty()) {
      const CUstream_st::Entry& next = stream->queue.front();
      const bool there = std::ranges::find(State().streams, next.awaited) != State().streams.end();
      if (there && next.awaited->done < next.position) break;
      RunTo(stream, stream->done + 1);
    }
  }
}

void RunAll() {
  for (const CUstream stream : State().streams) RunTo(stream, stream->queued);
}

void RunKernel(const CUgraphNode_st& launch) {
  FakeState& state = State();
  if (launch.arguments.empty()) return;  // a delay, which computes nothing
  ++state.values["kernels run"];
  state.clock += 1;
  if (IsDue("lose")) state.sticky = static_cast<CUresult>(state.values["lose with"]);
  int64_t added = 1;
  if (launch.function->reads_vars) {
    const char* const vars = At(launch.arguments.back(), 8);
    if (vars == nullptr) return;
    std::memcpy(&added, vars, 8);
  }
  char* const to = At(launch.arguments.front(), 8);
  if (to == nullptr || state.sticky != CUDA_SUCCESS) return;
  int64_t value = 0;
  std::memcpy(&value, to, 8);
  value = value * 3 + added;  // the order shows
  std::memcpy(to, &value, 8);
}

CUgraphNode_st NodeOf(CUfunction function, unsigned x, unsigned y, unsigned z, void** params) {
  CUgraphNode_st node{function, {x, y, z}, {}};
  for (size_t i = 0; i < function->params; ++i)
    node.arguments.push_back(*static_cast<const uint64_t*>(params[i]));
  return node;
}

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE void outboard_fake_set(const char* name, int64_t value) {
  const Lock lock(State().mutex);
  State().values[name] = value;
  if (std::string(name) == "well") State().sticky = CUDA_SUCCESS;
}
FAKE int64_t outboard_fake_get(const char* name) {
  const Lock lock(State().mutex);
  State().values["memory blocks"] = static_cast<int64_t>(State().memory.size());
  State().values["pinned blocks"] = static_cast<int64_t>(State().pinned.size());
  return State().values[name];
}

FAKE CUresult cuInit(unsigned) {
  return outboard_fake_get("devices") > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
FAKE CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(outboard_fake_get("version"));
  return CUDA_SUCCESS;
}
FAKE CUresult cuGetErrorName(CUresult code, const char** name) {
  *name = code == CUDA_ERROR_ILLEGAL_ADDRESS     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == CUDA_ERROR_ECC_UNCORRECTABLE ? "CUDA_ERROR_ECC_UNCORRECTABLE"
                                                 : nullptr;
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "so the fake driver says";
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(outboard_fake_get("devices"));
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal >= outboard_fake_get("devices")) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes));
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice device) {
  if (device == outboard_fake_get("silent device") - 1) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  switch (what) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = device < outboard_fake_get("old devices")
                   ? 7
                   : static_cast<int>(outboard_fake_get("major"));
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    default: *value = 1024;
  }
  return CUDA_SUCCESS;
}
FAKE CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = static_cast<size_t>(outboard_fake_get("memory"));
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = &State().context;
  return CUDA_SUCCESS;
}
FAKE CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
FAKE CUresult cuCtxSetCurrent(CUcontext context) {
  has_context = context != nullptr;
  return CUDA_SUCCESS;
}
FAKE CUresult cuCtxSynchronize() {
  FAKE_READY();
  RunAll();
  return State().sticky;
}

FAKE CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  FAKE_READY();
  *total = static_cast<size_t>(State().values["memory"]);
  *free = *total;
  for (const auto& [address, block] : State().memory) *free -= block.size();
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  FAKE_READY();
  size_t free = 0, total = 0;
  cuMemGetInfo_v2(&free, &total);
  if (IsDue("refuse memory") || bytes == 0 || bytes > free) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = State().next;
  State().next += (bytes / kAlignment + 2) * kAlignment;  // a gap behind each
  State().memory[*address].assign(bytes, '\xAA');
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFree_v2(CUdeviceptr address) {
  FAKE_READY();
  RunAll();
  return State().memory.erase(address) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE CUresult cuMemHostAlloc(void** host, size_t bytes, unsigned) {
  FAKE_READY();
  if (State().values["unpinnable"] != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  char* const data = new char[bytes];
  State().pinned[data] = bytes;
  *host = data;
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemFreeHost(void* host) {
  FAKE_READY();
  RunAll();
  State().pinned.erase(static_cast<char*>(host));
  delete[] static_cast<char*>(host);
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                                   CUstream stream) {
  FAKE_READY();
  ++State().values["uploads"];
  if (!IsPinned(from, bytes) && State().values["unpinnable"] == 0) ++State().values["faults"];
  Enqueue(stream, [=] {
    ++State().values["uploads run"];
    if (char* const data = At(to, bytes)) std::memcpy(data, from, bytes);
  });
  RunCopiesEarly();
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_READY();
  if (!IsPinned(to, bytes) && State().values["unpinnable"] == 0) ++State().values["faults"];
  Enqueue(stream, [=] {
    if (const char* const data = At(from, bytes)) std::memcpy(to, data, bytes);
  });
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                   CUstream stream) {
  FAKE_READY();
  Enqueue(stream, [=] {
    char* const data = At(to, bytes);
    const char* const source = At(from, bytes);
    if (data != nullptr && source != nullptr) std::memcpy(data, source, bytes);
  });
  return CUDA_SUCCESS;
}
FAKE CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  FAKE_READY();
  Enqueue(stream, [=] {
    if (char* const data = At(to, bytes)) std::memset(data, byte, bytes);
  });
  RunCopiesEarly();
  return CUDA_SUCCESS;
}

FAKE CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_READY();
  State().streams.push_back(*stream = new CUstream_st);
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamDestroy_v2(CUstream stream) {
  FAKE_READY();
  RunTo(stream, stream->queued);
  std::erase(State().streams, stream);
  delete stream;
  return CUDA_SUCCESS;
}
FAKE CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_READY();
  RunTo(stream, stream->queued);
  return State().sticky;
}
FAKE CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  FAKE_READY();
  stream->queue.push_back(
      {[other = event->stream, position = event->position] { WaitFor(other, position); }, nullptr,
       event->stream, event->position});
  ++stream->queued;
  RunCopiesEarly();
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_READY();
  *event = Own(new CUevent_st);
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventDestroy_v2(CUevent event) {
  FAKE_READY();
  WaitFor(event->stream, event->position);
  Delete(event);
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventRecord(CUevent event, CUstream stream) {
  FAKE_READY();
  Enqueue(stream, [event] { event->time = State().clock; });
  event->stream = stream;
  event->position = stream->queued;
  return CUDA_SUCCESS;
}
FAKE CUresult cuEventQuery(CUevent event) {
  FAKE_READY();
  const bool queued = std::ranges::find(State().streams, event->stream) != State().streams.end() &&
                      event->stream->done < event->position;
  return queued ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
FAKE CUresult cuEventSynchronize(CUevent event) {
  FAKE_READY();
  WaitFor(event->stream, event->position);
  return State().sticky;
}
FAKE CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  FAKE_READY();
  *milliseconds = static_cast<float>(end->time - begin->time);
  return CUDA_SUCCESS;
}
FAKE CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values,
                              CUlinkState* state) {
  FAKE_READY();
  *state = Own(new CUlinkState_st);
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) (*state)->log = static_cast<char*>(values[i]);
  return CUDA_SUCCESS;
}
FAKE CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t bytes,
                               const char*, unsigned, CUjit_option*, void**) {
  FAKE_READY();
  ++State().values["links"];
  const std::string text(static_cast<const char*>(data), bytes);
  if (type != CU_JIT_INPUT_PTX || text.back() != '\0') ++State().values["faults"];
  if (const char* const why = WhyNotLinked(text)) {
    if (state->log != nullptr) std::strcpy(state->log, why);
    return CUDA_ERROR_INVALID_PTX;
  }
  state->code = kCodeMark + text;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLinkComplete(CUlinkState state, void** cubin, size_t* bytes) {
  MeetOtherLinks();
  FAKE_READY();
  *cubin = state->code.data();
  *bytes = state->code.size();
  return CUDA_SUCCESS;
}
FAKE CUresult cuLinkDestroy(CUlinkState state) {
  FAKE_READY();
  Delete(state);
  return CUDA_SUCCESS;
}
FAKE CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*,
                                 void**) {
  FAKE_READY();
  ++State().values["modules"];
  const std::string text = static_cast<const char*>(image);
  if (!text.starts_with(kCodeMark) && !text.starts_with(".version"))
    return CUDA_ERROR_INVALID_IMAGE;
  *module = Own(new CUmod_st{text});
  return CUDA_SUCCESS;
}
FAKE CUresult cuModuleUnload(CUmodule module) {
  FAKE_READY();
  for (const CUstream stream : State().streams)
    for (const CUstream_st::Entry& entry : stream->queue)
      if (entry.module == module) ++State().values["faults"];
  ++State().values["modules unloaded"];
  std::erase_if(State().functions, [&](const auto& entry) { return entry.first.first == module; });
  Delete(module);
  return CUDA_SUCCESS;
}
FAKE CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_READY();
  const std::string& text = module->text;
  if (text.find(std::string(".entry ") + name + "(") == std::string::npos)
    return CUDA_ERROR_NOT_FOUND;
  auto& found = State().functions[{module, name}];
  if (found == nullptr) {
    found = std::make_unique<CUfunc_st>(CUfunc_st{module, name, 0, false});
    for (size_t at = 0; (at = text.find(".param", at)) != std::string::npos; ++at) ++found->params;
    found->reads_vars = text.find("vars") != std::string::npos;
  }
  *function = found.get();
  return CUDA_SUCCESS;
}
FAKE CUresult cuFuncGetAttribute(int* value, CUfunction_attribute what, CUfunction function) {
  FAKE_READY();
  *value = what == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK           ? 512
           : what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? function->dynamic_shared_max
                                                                     : 0;
  return CUDA_SUCCESS;
}
FAKE CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
  FAKE_READY();
  if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 227 << 10)
    return CUDA_ERROR_INVALID_VALUE;
  function->dynamic_shared_max = value;
  return CUDA_SUCCESS;
}
FAKE CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned,
                             unsigned, unsigned, unsigned shared_bytes, CUstream stream,
                             void** params, void**) {
  FAKE_READY();
  if (static_cast<int>(shared_bytes) > function->dynamic_shared_max)
    return CUDA_ERROR_INVALID_VALUE;
  ++State().values["launches"];
  Enqueue(
      stream, [node = NodeOf(function, x, y, z, params)] { RunKernel(node); }, function->module);
  return CUDA_SUCCESS;
}

FAKE CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  FAKE_READY();
  ++State().values["graphs"];
  *graph = Own(new CUgraph_st);
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphDestroy(CUgraph graph) {
  FAKE_READY();
  Delete(graph);
  ++State().values["graphs destroyed"];
  return CUDA_SUCCESS;
}
// Chains alone: each node comes after the one before it.
FAKE CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      size_t after_count,
                                      const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  FAKE_READY();
  if (params->context != &State().context || after_count > 1 ||
      (after_count == 1 && *after != &graph->nodes.back()))
    return CUDA_ERROR_INVALID_VALUE;
  graph->edges += after_count;
  graph->nodes.push_back(
      NodeOf(params->function, params->grid_x, params->grid_y, params->grid_z, params->params));
  *node = &graph->nodes.back();
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                        const CUgraphNode* to, const CUgraphEdgeData* edges,
                                        size_t count) {
  FAKE_READY();
  if (IsDue("refuse edges")) return CUDA_ERROR_INVALID_VALUE;
  const size_t nodes = graph->nodes.size();
  if (count != 1 || nodes < 2 || *to != &graph->nodes[nodes - 1] ||
      *from != &graph->nodes[nodes - 2] ||
      edges->from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
      edges->type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
    return CUDA_ERROR_INVALID_VALUE;
  ++graph->edges;
  ++State().values["edges that overlap"];
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  FAKE_READY();
  if (IsDue("refuse graph")) return CUDA_ERROR_OUT_OF_MEMORY;
  if (graph->edges + 1 != graph->nodes.size()) return CUDA_ERROR_INVALID_VALUE;  // no chain
  *exec = Own(new CUgraphExec_st{graph->nodes, {}});
  for (size_t i = 0; i < graph->nodes.size(); ++i) (*exec)->places[&graph->nodes[i]] = i;
  return CUDA_SUCCESS;
}
FAKE CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  FAKE_READY();
  ++State().values["patches"];
  const auto place = exec->places.find(node);
  if (place == exec->places.end()) return CUDA_ERROR_INVALID_VALUE;
  exec->nodes[place->second] =
      NodeOf(params->function, params->grid_x, params->grid_y, params->grid_z, params->params);
  return CUDA_SUCCESS;
}
#ifndef FAKE_WITHOUT_GRAPH_LAUNCH
FAKE CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  FAKE_READY();
  ++State().values["graph launches"];
  for (const CUgraphNode_st& node : exec->nodes)
    Enqueue(stream, [node] { RunKernel(node); }, node.function->module);
  return CUDA_SUCCESS;
}
#endif
FAKE CUresult cuGraphExecDestroy(CUgraphExec exec) {
  FAKE_READY();
  Delete(exec);
  return CUDA_SUCCESS;
}

// What is here is what api.h declares.
#ifndef FAKE_WITHOUT_GRAPH_LAUNCH
#define FAKE_CHECK(member, symbol, arguments) \
  static_assert(std::is_same_v<decltype(&symbol), decltype(DriverApi::member)>);
OUTBOARD_CUDA_FUNCTIONS(FAKE_CHECK)
#endif

}  // namespace outboard::cuda
